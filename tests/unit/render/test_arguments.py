"""The engine's command line."""

from __future__ import annotations

import json

import pytest

from reasoningpool.api.spec_engine import ChatTemplate
from reasoningpool.api.spec_model import ClaimSource, ImageSource, ModelSource, Quantization
from reasoningpool.api.spec_tier import KVOffloadSpec, SpeculativeMethod, SpeculativeSpec
from reasoningpool.render import engine_arguments
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import KVCacheDType
from reasoningpool.vllm.argument_policy import OWNED
from reasoningpool.vllm.extra_arguments import check_extra_arguments
from reasoningpool.vllm.flag_table import spellings
from unit.render import builders as b

EVERYTHING = b.chat_tier(
    model=b.model(revision="abc123", quantization=Quantization.FP8),
    engine=b.engine(
        enforce_eager=True,
        trust_remote_code=True,
        chat_template=ChatTemplate(inline="{{ messages }}"),
        extra_args=("--seed=1", "--stream-interval", "4"),
    ),
    speculative=SpeculativeSpec(method=SpeculativeMethod.DRAFT_MODEL, tokens=3, model="Qwen/Qwen3-0.6B"),
    kv_offload=KVOffloadSpec(cpu_memory="96Gi"),
    block_size=32,
)


def flags(tier: EffectiveTier, **plan: object) -> dict[str, str]:
    """Arguments by flag."""
    tokens = engine_arguments(tier, b.sizing_plan(**plan))[1:]
    return dict(token.partition("=")[::2] for token in tokens)


def test_a_plain_tier_states_every_limit_it_was_sized_for() -> None:
    assert engine_arguments(b.tier(), b.sizing_plan()) == (
        "Qwen/Qwen3-8B",
        "--served-model-name=qwen3-8b",
        "--max-num-seqs=64",
        "--max-model-len=13344",
        "--max-num-batched-tokens=8192",
        "--tensor-parallel-size=1",
        "--kv-cache-dtype=fp8",
        "--gpu-memory-utilization=0.92",
        "--enable-prefix-caching",
        "--host=0.0.0.0",
        "--port=8000",
        "--reasoning-parser=qwen3",
        "--enable-auto-tool-choice",
        "--tool-call-parser=hermes",
        "--shutdown-timeout=154",
    )


def test_everything_a_tier_can_ask_for() -> None:
    assert engine_arguments(EVERYTHING, b.sizing_plan()) == (
        "Qwen/Qwen3-8B",
        "--revision=abc123",
        "--served-model-name=qwen3-8b",
        "--quantization=fp8",
        "--trust-remote-code",
        "--enforce-eager",
        "--max-num-seqs=64",
        "--max-model-len=13344",
        "--max-num-batched-tokens=8192",
        "--tensor-parallel-size=1",
        "--kv-cache-dtype=fp8",
        "--gpu-memory-utilization=0.92",
        "--block-size=32",
        "--enable-prefix-caching",
        "--kv-offloading-size=96",
        "--kv-offloading-backend=native",
        '--speculative-config={"method":"draft_model","num_speculative_tokens":3,"model":"Qwen/Qwen3-0.6B"}',
        "--host=0.0.0.0",
        "--port=8000",
        "--reasoning-parser=qwen3",
        "--enable-auto-tool-choice",
        "--tool-call-parser=hermes",
        '--default-chat-template-kwargs={"enable_thinking":false}',
        "--chat-template=/etc/reasoningpool/chat-template/template.jinja",
        "--shutdown-timeout=154",
        "--seed=1",
        "--stream-interval",
        "4",
    )


def test_the_same_tier_gives_the_same_arguments() -> None:
    assert engine_arguments(EVERYTHING, b.sizing_plan()) == engine_arguments(EVERYTHING, b.sizing_plan())


@pytest.mark.parametrize("tier", [b.tier(), EVERYTHING, b.cpu_tier()], ids=["plain", "everything", "cpu"])
def test_every_rendered_flag_is_known_owned_and_unique(tier: EffectiveTier) -> None:
    rendered = [token.partition("=")[0] for token in engine_arguments(tier, b.sizing_plan())[1:]]
    ours = [flag for flag in rendered if flag.startswith("--") and flag not in {"--seed", "--stream-interval"}]
    assert set(ours) <= set(OWNED)
    assert len(set(ours)) == len(ours)
    assert set(ours) <= set(spellings())


@pytest.mark.parametrize("tier", [b.tier(), EVERYTHING, b.cpu_tier()], ids=["plain", "everything", "cpu"])
def test_no_rendered_argument_may_be_given_again(tier: EffectiveTier) -> None:
    for token in engine_arguments(b.tier(), b.sizing_plan())[1:]:
        assert check_extra_arguments([token], None), token


def test_a_stated_pool_replaces_the_utilization() -> None:
    given = flags(b.cpu_tier())
    assert given["--kv-cache-memory-bytes"] == "67108864"
    assert "--gpu-memory-utilization" not in given


@pytest.mark.parametrize(("percent", "rendered"), [(92, "0.92"), (90, "0.90"), (98, "0.98"), (10, "0.10")])
def test_utilization_is_a_fraction(percent: int, rendered: str) -> None:
    assert flags(b.tier(engine=b.engine(memory_utilization_percent=percent)))["--gpu-memory-utilization"] == rendered


@pytest.mark.parametrize(
    ("dtype", "rendered"),
    [
        (KVCacheDType.AUTO, "auto"),
        (KVCacheDType.BF16, "bfloat16"),
        (KVCacheDType.FP16, "float16"),
        (KVCacheDType.FP8, "fp8"),
        (KVCacheDType.FP8_E5M2, "fp8_e5m2"),
    ],
)
def test_kv_cache_types_in_the_engines_words(dtype: KVCacheDType, rendered: str) -> None:
    assert flags(b.tier(engine=b.engine(kv_cache_dtype=dtype)))["--kv-cache-dtype"] == rendered


def test_online_quantization_only_where_asked_for() -> None:
    assert "--quantization" not in flags(b.tier(model=b.model(quantization=Quantization.NONE)))


@pytest.mark.parametrize(
    ("source", "location"),
    [
        (ModelSource(persistent_volume_claim=ClaimSource(claim_name="weights", path="qwen/8b")), "/models/qwen/8b"),
        (ModelSource(persistent_volume_claim=ClaimSource(claim_name="weights")), "/models"),
        (ModelSource(image=ImageSource(reference="registry/weights:1", path="m")), "/models/m"),
    ],
)
def test_mounted_weights_are_loaded_by_path_and_served_by_name(source: ModelSource, location: str) -> None:
    arguments = engine_arguments(b.tier(model=b.model(source=source, revision="abc")), b.sizing_plan())
    assert arguments[0] == location
    assert "--served-model-name=qwen3-8b" in arguments
    assert not any(argument.startswith("--revision") for argument in arguments)


def test_chat_switches_thinking_off_only_where_there_is_a_switch() -> None:
    assert "--default-chat-template-kwargs" not in flags(b.chat_tier(model=b.model(thinking_switch=None)))
    assert "--default-chat-template-kwargs" not in flags(b.tier())
    given = flags(b.chat_tier(model=b.model(thinking_switch="thinking")))["--default-chat-template-kwargs"]
    assert json.loads(given) == {"thinking": False}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ((0, 33, 0), "--disable-prefix-caching"),
        (None, "--disable-prefix-caching"),
        ((0, 32, 0), "--no-enable-prefix-caching"),
    ],
)
def test_prefix_caching_off_is_spelt_as_the_version_knows_it(
    version: tuple[int, int, int] | None, expected: str
) -> None:
    given = flags(b.tier(engine=b.engine(prefix_caching=False, version=version)))
    assert expected in given
    assert "--enable-prefix-caching" not in given


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (SpeculativeSpec(method=SpeculativeMethod.MTP, tokens=1), {"method": "mtp", "num_speculative_tokens": 1}),
        (SpeculativeSpec(method=SpeculativeMethod.NGRAM, tokens=5), {"method": "ngram", "num_speculative_tokens": 5}),
        (
            SpeculativeSpec(method=SpeculativeMethod.EAGLE3, tokens=2, model="org/eagle"),
            {"method": "eagle3", "num_speculative_tokens": 2, "model": "org/eagle"},
        ),
    ],
)
def test_speculative_decoding_is_one_json_value(spec: SpeculativeSpec, expected: dict[str, object]) -> None:
    assert json.loads(flags(b.tier(speculative=spec))["--speculative-config"]) == expected


@pytest.mark.parametrize(("memory", "rendered"), [("64Gi", "64"), ("1536Mi", "1.5"), ("100Gi", "100")])
def test_offload_size_is_gib_over_all_ranks(memory: str, rendered: str) -> None:
    tier = b.tier(kv_offload=KVOffloadSpec(cpu_memory=memory), accelerator=b.accelerator(per_replica=4))
    assert flags(tier, tensor_parallel_size=4)["--kv-offloading-size"] == rendered


def test_secrets_are_in_no_argument() -> None:
    from reasoningpool.api.spec_model import HuggingFaceSource, SecretKeyRef

    ref = SecretKeyRef(name="vault", key="token")
    tier = b.tier(
        model=b.model(source=ModelSource(hugging_face=HuggingFaceSource(token_secret_ref=ref))),
        engine=b.engine(api_key_secret_ref=ref),
    )
    assert "vault" not in " ".join(engine_arguments(tier, b.sizing_plan()))


def test_no_typed_value_can_be_expanded_by_kubernetes() -> None:
    assert not any("$(" in argument for argument in engine_arguments(EVERYTHING, b.sizing_plan()))

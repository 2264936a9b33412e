"""Field reports whose right behaviour is decided while a pool is resolved, by their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reasoningpool.api.conditions import Reason
from reasoningpool.api.resource import parse_pool
from reasoningpool.render import engine_arguments
from reasoningpool.resolution.resolve import ResolutionSettings, resolve
from reasoningpool.resolution.types import EffectivePool
from reasoningpool.sizing import SizingPlan, plan
from support.pools import changed, chat_tier, pool, tier

A100 = {"product": "A100-SXM-80GB"}
SMALL = {"id": "Qwen/Qwen3-8B"}


def resolved(body: dict[str, Any], *accounts: str) -> EffectivePool:
    return resolve(parse_pool(body), ResolutionSettings(allowed_service_accounts=frozenset(accounts)))


def texts(found: tuple[Any, ...]) -> str:
    return "\n".join(str(finding) for finding in found)


def arguments(found: EffectivePool, index: int = 0) -> tuple[str, ...]:
    sizing = plan(found.tiers[index].sizing_input)
    assert isinstance(sizing, SizingPlan)
    return engine_arguments(found.tiers[index], sizing)


def usable(found: EffectivePool, index: int = 0) -> int:
    sizing = plan(found.tiers[index].sizing_input)
    assert isinstance(sizing, SizingPlan)
    return sizing.usable_kv_tokens


def test_s06_fp8_kv_below_compute_capability_8_9_is_refused_and_auto_is_bf16() -> None:
    refused = resolved(pool(model=SMALL, accelerator=A100, engine={"kvCacheDType": "FP8"}))
    (error,) = refused.errors
    assert (error.path, error.reason) == ("spec.engine.kvCacheDType", Reason.KV_DTYPE_UNSUPPORTED)
    assert "A100-SXM-80GB (compute capability 8.0)" in error.message
    unset = resolved(pool(model=SMALL, accelerator=A100))
    assert unset.errors == ()
    assert not any("fp8" in argument for argument in arguments(unset))


def test_s08_fp8_kv_on_ampere_works_by_explicit_opt_in_with_a_warning_and_twice_the_tokens() -> None:
    engine = {"kvCacheDType": "FP8", "allowUnverifiedKVCacheDType": True, "kvCacheMemory": "10Gi"}
    opted = resolved(pool(model=SMALL, accelerator=A100, engine=engine))
    assert opted.errors == ()
    assert any(warning.reason is Reason.KV_DTYPE_UNSUPPORTED for warning in opted.warnings)
    assert "--kv-cache-dtype=fp8" in arguments(opted)
    bf16 = resolved(pool(model=SMALL, accelerator=A100, engine=engine | {"kvCacheDType": "BF16"}))
    block = 16
    assert usable(opted) + block == 2 * (usable(bf16) + block), "the null block aside, exactly double"


def test_s09_one_tier_may_override_the_kv_dtype() -> None:
    body = pool(
        engine={"kvCacheDType": "FP8"},
        tiers=[tier("deep", engine={"kvCacheDType": "BF16"}), tier("wide")],
    )
    found = resolved(body)
    deep, wide = arguments(found, 0), arguments(found, 1)
    assert "--kv-cache-dtype=fp8" not in deep
    assert "--kv-cache-dtype=fp8" in wide
    assert found.tiers[0].engine == replace(found.tiers[1].engine, kv_cache_dtype=found.tiers[0].engine.kv_cache_dtype)
    sizes = [plan(entry.sizing_input) for entry in found.tiers]
    assert [size.kv_bytes_per_token for size in sizes if isinstance(size, SizingPlan)] == [262_144, 131_072]


def test_s11_devices_that_cannot_share_the_heads_are_refused_with_those_that_can() -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,'
        ' "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 8192}'
    )
    body = pool(model={"id": "example/32b", "configJSON": config}, accelerator={"product": "L4-24GB", "perReplica": 6})
    (error,) = resolved(body).errors
    assert error.path == "spec.accelerator.perReplica"
    assert "1, 2, 4, 5" in error.message


def test_s13_utilization_that_leaves_no_room_for_graphs_is_warned_about_and_not_changed() -> None:
    t4 = {"custom": {"memory": "15770Mi", "computeCapability": "7.5"}, "perReplica": 2}
    body = pool(model=SMALL, accelerator=t4, engine={"memoryUtilizationPercent": 95})
    found = resolved(body)
    assert "leaves 0.77 GiB" in texts(found.warnings)
    assert found.tiers[0].engine.memory_utilization_percent == 95
    assert "leaves" not in texts(resolved(changed(body, "spec.engine", {"memoryUtilizationPercent": 90})).warnings)


def test_k18_contradiction_found_only_in_code_is_an_error_with_both_numbers() -> None:
    (error,) = resolved(pool(tiers=[tier(maxModelLen=100)])).errors
    assert error.path == "spec.tiers[0].maxModelLen"
    assert "100 tokens" in error.message
    assert "9216" in error.message


def test_r04_version_comes_from_the_field_the_tag_or_is_said_to_be_unknown() -> None:
    assert resolved(pool(engine={"version": "0.17.1"})).tiers[0].engine.version == (0, 17, 1)
    assert resolved(pool(engine={"image": "registry:5000/vllm:v0.18.0"})).tiers[0].engine.version == (0, 18, 0)
    for image in ("vllm/vllm-openai:latest", "vllm/vllm-openai", "vllm@sha256:" + "a" * 64, "registry:5000/vllm"):
        unknown = resolved(pool(engine={"image": image}))
        assert unknown.tiers[0].engine.version is None, image
        assert "does not tell vLLM's version" in texts(unknown.warnings)


@pytest.mark.parametrize(
    ("tiers", "warned"),
    [
        ([tier(replicas=3)], True),
        ([tier(replicas=1)], False),
        ([tier(replicas=1), chat_tier(replicas=1)], True),
        ([{key: value for key, value in tier().items() if key != "replicas"}], False),
        ([tier(replicas=None) | {"scaling": {"minReplicas": 1, "maxReplicas": 3}}], True),
    ],
)
def test_r18_shared_cache_claim_is_warned_about_where_several_replicas_use_it(
    tiers: list[Any],
    warned: bool,  # noqa: FBT001 - a table
) -> None:
    body = pool(model={"id": "Qwen/Qwen3-8B", "cache": {"claimName": "models"}}, tiers=tiers)
    body["spec"]["tiers"] = [{k: v for k, v in entry.items() if v is not None} for entry in tiers]
    assert ("must be ReadWriteMany" in texts(resolved(body).warnings)) is warned
    own = changed(body, "spec.model.cache", {"claimTemplate": {"size": "10Gi"}})
    assert "ReadWriteMany" not in texts(resolved(own).warnings)


@pytest.mark.parametrize(
    ("version", "parser", "severity", "words"),
    [
        ("0.8.5", "qwen3", "errors", "0.9"),
        ("0.9.0", "qwen3", "errors", None),
        ("0.9.0", "qwen33", "warnings", "'qwen33' is none of the parsers"),
    ],
)
def test_u02_parser_that_this_engine_does_not_have(version: str, parser: str, severity: str, words: str | None) -> None:
    body = pool(model={"id": "Qwen/Qwen3-8B", "parsers": {"reasoning": parser}}, engine={"version": version})
    found = texts(getattr(resolved(body), severity))
    if words is None:
        assert "parsers.reasoning" not in found
    else:
        assert "spec.model.parsers.reasoning" in found
        assert words in found


def test_u03_chat_tier_has_thinking_off_and_never_a_parser_that_swallows_the_answer() -> None:
    found = resolved(pool(model=SMALL, tiers=[chat_tier()]))
    rendered = arguments(found)
    assert '--default-chat-template-kwargs={"enable_thinking":false}' in rendered
    assert "--reasoning-parser=deepseek_r1" not in rendered
    distilled = resolved(pool(model={"id": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"}, tiers=[chat_tier()]))
    assert not any("reasoning-parser" in argument for argument in arguments(distilled))
    mismatch = resolved(pool(model=SMALL | {"parsers": {"reasoning": "deepseek_r1"}}, tiers=[chat_tier()]))
    assert "models use the parser qwen3" in texts(mismatch.warnings)


def test_u05_thinking_budget_below_the_floor_is_warned_about() -> None:
    efforts = [{"name": "medium", "thinkingTokens": 512, "answerTokens": 512}]
    assert "below 1024" in texts(resolved(pool(tiers=[tier(efforts=efforts)])).warnings)
    assert "below 1024" not in texts(resolved(pool()).warnings)


def test_u08_parser_that_cannot_be_turned_off_is_said_to_stay_on() -> None:
    off = {"id": "openai/gpt-oss-20b", "parsers": {"reasoning": "none"}}
    found = resolved(pool(model=off, tiers=[chat_tier()]))
    assert "none does not turn it off" in texts(found.warnings)
    assert not any("reasoning-parser" in argument for argument in arguments(found))


def test_x02_development_mode_is_warned_about() -> None:
    container = {"name": "engine", "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]}
    found = resolved(pool(tiers=[tier(podOverrides={"containers": [container]})]))
    assert "opens control endpoints that the API key does not protect" in texts(found.warnings)


def test_x05_service_account_must_be_allowed_by_the_operators_settings() -> None:
    body = pool(tiers=[tier(podOverrides={"serviceAccountName": "cluster-admin-sa"})])
    (error,) = resolved(body).errors
    assert error.path == "spec.tiers[0].podOverrides.serviceAccountName"
    assert resolved(body, "cluster-admin-sa").errors == ()


@pytest.mark.parametrize(
    "overrides",
    [
        {"volumes": [{"name": "h", "hostPath": {"path": "/"}}]},
        {"containers": [{"name": "engine", "securityContext": {"privileged": True}}]},
        {"containers": [{"name": "engine", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
        {"hostNetwork": True},
        {"hostPID": True},
    ],
)
def test_x05_what_gives_rights_on_the_node_is_no_field_at_all(overrides: dict[str, Any]) -> None:
    from reasoningpool.api.resource import SpecError

    with pytest.raises(SpecError, match="unknown field"):
        parse_pool(pool(tiers=[tier(podOverrides=overrides)]))


def test_model_and_accelerator_overrides_replace_whole_so_that_nothing_leaks() -> None:
    body = pool(
        model={"id": "Qwen/Qwen3-32B", "servedName": "big", "quantization": "FP8", "parsers": {"toolCall": "hermes"}},
        tiers=[tier(), chat_tier(model={"id": "meta-llama/Llama-3.1-8B-Instruct"})],
    )
    chat = resolved(body).tiers[1].model
    assert (chat.served_name, chat.quantization) == ("llama-3.1-8b-instruct", None)


def test_tier_engine_is_merged_field_by_field_and_errors_name_where_they_were_written() -> None:
    body = pool(
        engine={"memoryUtilizationPercent": 80, "extraArgs": ["--disable-log-requests"]},
        tiers=[tier(engine={"extraArgs": ["--port=1"]}), chat_tier()],
    )
    found = resolved(body)
    assert [entry.engine.memory_utilization_percent for entry in found.tiers] == [80, 80]
    assert [error.path for error in found.errors] == ["spec.tiers[0].engine.extraArgs[0]"]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [(["--enable-expert-parallel"], True), (["--enable_expert_parallel"], True), (["-ep"], True), ([], False)],
)
def test_expert_parallelism_is_read_from_the_extra_arguments(extra: list[str], expected: bool) -> None:  # noqa: FBT001
    found = resolved(pool(tiers=[tier(engine={"extraArgs": extra}), chat_tier()]))
    assert found.tiers[0].sizing_input.expert_parallel is expected

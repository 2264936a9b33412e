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


@pytest.mark.field_report("S06")
def test_fp8_kv_below_compute_capability_8_9_is_rejected_and_auto_is_bf16() -> None:
    refused = resolved(pool(model=SMALL, accelerator=A100, engine={"kvCacheDType": "FP8"}))
    (error,) = refused.errors
    assert (error.path, error.reason) == ("spec.engine.kvCacheDType", Reason.KV_DTYPE_UNSUPPORTED)
    assert "A100-SXM-80GB (compute capability 8.0)" in error.message
    unset = resolved(pool(model=SMALL, accelerator=A100))
    assert unset.errors == ()
    assert not any("fp8" in argument for argument in arguments(unset))


@pytest.mark.field_report("S08")
def test_fp8_kv_on_ampere_needs_opt_in_warns_and_doubles_the_tokens() -> None:
    engine = {"kvCacheDType": "FP8", "allowUnverifiedKVCacheDType": True, "kvCacheMemory": "10Gi"}
    opted = resolved(pool(model=SMALL, accelerator=A100, engine=engine))
    assert opted.errors == ()
    assert any(warning.reason is Reason.KV_DTYPE_UNSUPPORTED for warning in opted.warnings)
    assert "--kv-cache-dtype=fp8" in arguments(opted)
    bf16 = resolved(pool(model=SMALL, accelerator=A100, engine=engine | {"kvCacheDType": "BF16"}))
    block = 16
    assert usable(opted) + block == 2 * (usable(bf16) + block), "the null block aside, exactly double"


@pytest.mark.field_report("S09")
def test_one_tier_may_override_the_kv_dtype() -> None:
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


@pytest.mark.field_report("S11")
def test_gpu_count_that_does_not_divide_the_heads_names_valid_ones() -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40,'
        ' "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 8192}'
    )
    body = pool(model={"id": "example/32b", "configJSON": config}, accelerator={"product": "L4-24GB", "perReplica": 6})
    (error,) = resolved(body).errors
    assert error.path == "spec.accelerator.perReplica"
    assert "1, 2, 4, 5" in error.message


@pytest.mark.field_report("S13")
def test_utilization_without_room_for_graphs_warns_and_is_kept() -> None:
    t4 = {"custom": {"memory": "15770Mi", "computeCapability": "7.5"}, "perReplica": 2}
    body = pool(model=SMALL, accelerator=t4, engine={"memoryUtilizationPercent": 95})
    found = resolved(body)
    assert "leaves 0.77 GiB" in texts(found.warnings)
    assert found.tiers[0].engine.memory_utilization_percent == 95
    assert "leaves" not in texts(resolved(changed(body, "spec.engine", {"memoryUtilizationPercent": 90})).warnings)


@pytest.mark.field_report("K18")
def test_contradiction_past_the_schema_is_an_error_with_both_numbers() -> None:
    (error,) = resolved(pool(tiers=[tier(maxModelLen=100)])).errors
    assert error.path == "spec.tiers[0].maxModelLen"
    assert "100 tokens" in error.message
    assert "9216" in error.message


@pytest.mark.field_report("R04")
def test_engine_version_comes_from_field_or_tag_or_is_unknown() -> None:
    assert resolved(pool(engine={"version": "0.17.1"})).tiers[0].engine.version == (0, 17, 1)
    assert resolved(pool(engine={"image": "registry:5000/vllm:v0.18.0"})).tiers[0].engine.version == (0, 18, 0)
    for image in ("vllm/vllm-openai:latest", "vllm/vllm-openai", "vllm@sha256:" + "a" * 64, "registry:5000/vllm"):
        unknown = resolved(pool(engine={"image": image}))
        assert unknown.tiers[0].engine.version is None, image
        assert "does not name vLLM's version" in texts(unknown.warnings)


@pytest.mark.field_report("R18")
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
def test_cache_claim_shared_by_several_replicas_warns(
    tiers: list[Any],
    warned: bool,  # noqa: FBT001 - a table
) -> None:
    body = pool(model={"id": "Qwen/Qwen3-8B", "cache": {"claimName": "models"}}, tiers=tiers)
    body["spec"]["tiers"] = [{k: v for k, v in entry.items() if v is not None} for entry in tiers]
    assert ("must be ReadWriteMany" in texts(resolved(body).warnings)) is warned
    own = changed(body, "spec.model.cache", {"claimTemplate": {"size": "10Gi"}})
    assert "ReadWriteMany" not in texts(resolved(own).warnings)


@pytest.mark.field_report("U02")
@pytest.mark.parametrize(
    ("version", "parser", "severity", "words"),
    [
        ("0.8.5", "qwen3", "errors", "0.9"),
        ("0.9.0", "qwen3", "errors", None),
        ("0.9.0", "qwen33", "warnings", "'qwen33' is not a parser"),
    ],
)
def test_parser_unknown_to_the_engine_version(version: str, parser: str, severity: str, words: str | None) -> None:
    body = pool(model={"id": "Qwen/Qwen3-8B", "parsers": {"reasoning": parser}}, engine={"version": version})
    found = texts(getattr(resolved(body), severity))
    if words is None:
        assert "parsers.reasoning" not in found
    else:
        assert "spec.model.parsers.reasoning" in found
        assert words in found


@pytest.mark.field_report("U03")
def test_chat_tier_never_gets_a_parser_that_swallows_the_answer() -> None:
    found = resolved(pool(model=SMALL, tiers=[chat_tier()]))
    rendered = arguments(found)
    assert '--default-chat-template-kwargs={"enable_thinking":false}' in rendered
    assert "--reasoning-parser=deepseek_r1" not in rendered
    distilled = resolved(pool(model={"id": "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"}, tiers=[chat_tier()]))
    assert not any("reasoning-parser" in argument for argument in arguments(distilled))
    mismatch = resolved(pool(model=SMALL | {"parsers": {"reasoning": "deepseek_r1"}}, tiers=[chat_tier()]))
    assert "models use the parser qwen3" in texts(mismatch.warnings)


@pytest.mark.field_report("U05")
def test_thinking_budget_below_the_floor_warns() -> None:
    efforts = [{"name": "medium", "thinkingTokens": 512, "answerTokens": 512}]
    assert "below 1024" in texts(resolved(pool(tiers=[tier(efforts=efforts)])).warnings)
    assert "below 1024" not in texts(resolved(pool()).warnings)


@pytest.mark.field_report("U08")
def test_parser_that_cannot_be_turned_off_is_reported() -> None:
    off = {"id": "openai/gpt-oss-20b", "parsers": {"reasoning": "none"}}
    found = resolved(pool(model=off, tiers=[chat_tier()]))
    assert "none does not turn that off" in texts(found.warnings)
    assert not any("reasoning-parser" in argument for argument in arguments(found))


@pytest.mark.field_report("X02")
def test_development_mode_warns() -> None:
    container = {"name": "engine", "env": [{"name": "VLLM_SERVER_DEV_MODE", "value": "1"}]}
    found = resolved(pool(tiers=[tier(podOverrides={"containers": [container]})]))
    assert "opens control endpoints that the API key does not protect" in texts(found.warnings)


@pytest.mark.field_report("X05")
def test_service_account_must_be_allowed_by_the_operators_settings() -> None:
    body = pool(tiers=[tier(podOverrides={"serviceAccountName": "cluster-admin-sa"})])
    (error,) = resolved(body).errors
    assert error.path == "spec.tiers[0].podOverrides.serviceAccountName"
    assert resolved(body, "cluster-admin-sa").errors == ()


@pytest.mark.field_report("X05")
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
def test_no_field_grants_rights_on_the_node(overrides: dict[str, Any]) -> None:
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


def test_tier_engine_is_merged_by_field_and_errors_name_the_writing_path() -> None:
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

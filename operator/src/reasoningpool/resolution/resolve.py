"""From a parsed pool to tiers that can be sized and rendered. Pure: the same spec gives the same answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Findings
from reasoningpool.api.resource import ReasoningPool
from reasoningpool.api.scalars import parse_quantity
from reasoningpool.api.spec_tier import EffortSpec, Quantiles, SpeculativeMethod, TierSpec, Workload
from reasoningpool.catalog import find_model
from reasoningpool.model.geometry import Geometry
from reasoningpool.resolution import defaults
from reasoningpool.resolution.accelerator import resolve_accelerator
from reasoningpool.resolution.engine import MergedEngine, merge_engine, resolve_engine
from reasoningpool.resolution.gateway import resolve_gateway
from reasoningpool.resolution.model import KnownModel, know_model, resolve_model
from reasoningpool.resolution.overrides import check_overrides
from reasoningpool.resolution.runtime import resolve_runtime
from reasoningpool.resolution.types import EffectiveAccelerator, EffectiveEngine, EffectivePool, EffectiveTier
from reasoningpool.resolution.written import WrittenTier
from reasoningpool.sizing.constants import LEAST_THINKING_TOKENS
from reasoningpool.sizing.types import ConcurrencyPolicy, Effort, SizingInput, TokenQuantiles
from reasoningpool.sizing.validate import uneven_heads

_EXPERT_PARALLEL: Final = frozenset({"--enable-expert-parallel", "-ep"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionSettings:
    """What an administrator decides for all pools."""

    allowed_service_accounts: frozenset[str] = frozenset()
    runtime_image: str | None = None


def resolve(pool: ReasoningPool, settings: ResolutionSettings) -> EffectivePool:
    """Merge, look up and default every tier; what is wrong or doubtful is in `findings`."""
    findings = Findings()
    tiers = [
        resolved
        for index, tier in enumerate(pool.spec.tiers)
        if (resolved := _tier(pool, tier, f"spec.tiers[{index}]", findings, settings)) is not None
    ]
    _check_shared_claims(pool, findings)
    gateway = resolve_gateway(pool.spec, findings)
    return EffectivePool(
        name=pool.name,
        namespace=pool.namespace,
        uid=pool.uid,
        tiers=tuple(tiers),
        gateway=gateway,
        findings=findings.all(),
    )


def _tier(
    pool: ReasoningPool, tier: TierSpec, path: str, findings: Findings, settings: ResolutionSettings
) -> EffectiveTier | None:
    own = findings.of(tier.name)
    of_accelerator, of_model = (own if part else findings for part in (tier.accelerator, tier.model))
    accelerator_path = f"{path}.accelerator" if tier.accelerator else "spec.accelerator"
    accelerator = resolve_accelerator(tier.accelerator or pool.spec.accelerator, accelerator_path, of_accelerator)
    known = know_model(tier.model or pool.spec.model, f"{path}.model" if tier.model else "spec.model", of_model)
    _check_tier(tier, path, own)
    if tier.pod_overrides is not None:
        check_overrides(
            tier.pod_overrides,
            f"{path}.podOverrides",
            accelerator=accelerator,
            accelerator_path=accelerator_path,
            service_accounts=settings.allowed_service_accounts,
            findings=own,
        )
    if accelerator is None or known is None:
        return None
    merged = merge_engine(pool.spec.engine, tier, path)
    engine = resolve_engine(merged, accelerator, findings, scaling=tier.scaling is not None)
    model = resolve_model(known, tier.workload, engine.version, of_model)
    _check_parallelism(known.geometry, accelerator, accelerator_path, of_accelerator)
    _check_thinking(tier, known, path, own)
    _check_mtp(tier, known, path, own)
    return EffectiveTier(
        name=tier.name,
        path=path,
        workload=tier.workload,
        model=model,
        accelerator=accelerator,
        engine=engine,
        speculative=tier.speculative,
        kv_offload=tier.kv_offload,
        block_size=tier.block_size,
        max_unavailable=(tier.rollout.max_unavailable if tier.rollout else None) or defaults.MAX_UNAVAILABLE,
        overrides=tier.pod_overrides,
        sizing_input=_sizing_input(
            tier, known, accelerator=accelerator, engine=engine, merged=merged, findings=own, path=path
        ),
        runtime=resolve_runtime(pool.spec.runtime, tier, engine.version, settings.runtime_image, own),
    )


def _sizing_input(
    tier: TierSpec,
    known: KnownModel,
    *,
    accelerator: EffectiveAccelerator,
    engine: EffectiveEngine,
    merged: MergedEngine,
    findings: Findings,
    path: str,
) -> SizingInput:
    concurrency, objectives, overrides = tier.concurrency, tier.objectives, tier.pod_overrides
    bandwidth = merged.spec.load_bandwidth
    pre_stop = overrides.pre_stop_seconds if overrides else None
    draft = _draft(tier, known.geometry, findings, path)
    return SizingInput(
        accelerator=accelerator.facts,
        tensor_parallel_size=accelerator.per_replica,
        geometry=known.geometry,
        weight_bytes=known.weight_bytes,
        kv_cache_dtype=engine.kv_cache_dtype,
        memory_utilization_permille=engine.memory_utilization_percent * 10,
        kv_cache_memory_bytes=engine.kv_cache_memory_bytes,
        efforts=_efforts(tier),
        policy=(concurrency.policy if concurrency else None) or ConcurrencyPolicy.STATISTICAL,
        preemption_risk_permille=(concurrency.preemption_risk_permille if concurrency else None)
        or defaults.PREEMPTION_RISK_PERMILLE,
        shared_prefix_tokens=tier.shared_prefix_tokens or 0,
        template_overhead_tokens=defaults.TEMPLATE_OVERHEAD_TOKENS,
        speculative_tokens=tier.speculative.tokens if tier.speculative else 0,
        speculative_draft_layers=draft.layers,
        draft_weight_bytes=draft.weight_bytes,
        vision_weight_bytes=known.geometry.tower_bytes,
        max_num_seqs=tier.max_num_seqs,
        max_model_len=tier.max_model_len,
        max_num_batched_tokens=tier.max_num_batched_tokens,
        block_size=tier.block_size,
        prefix_caching=engine.prefix_caching,
        enforce_eager=engine.enforce_eager,
        engine_version=engine.version,
        time_per_output_token_ms=objectives.time_per_output_token_milliseconds if objectives else None,
        load_bandwidth_bytes_per_s=None if bandwidth is None else parse_quantity(bandwidth),
        pre_stop_seconds=defaults.PRE_STOP_SECONDS if pre_stop is None else pre_stop,
        expert_parallel=any(argument.replace("_", "-") in _EXPERT_PARALLEL for argument in engine.extra_args),
    )


def _efforts(tier: TierSpec) -> tuple[Effort, ...]:
    observed = {entry.effort: entry for entry in tier.token_distribution or ()}
    equal = 100 / len(tier.efforts)

    def effort(spec: EffortSpec) -> Effort:
        seen = observed.get(spec.name)
        prompt, output = (seen.prompt, seen.output) if seen else (None, None)
        return Effort(
            name=spec.name,
            prompt_tokens=tier.prompt_tokens,
            thinking_tokens=spec.thinking_tokens,
            answer_tokens=spec.answer_tokens,
            share=equal if spec.share_percent is None else float(spec.share_percent),
            prompt_distribution=_quantiles(prompt),
            output_distribution=_quantiles(output),
        )

    return tuple(effort(spec) for spec in tier.efforts)


def _quantiles(observed: Quantiles | None) -> TokenQuantiles | None:
    return TokenQuantiles(p50=observed.p50, p90=observed.p90, p99=observed.p99) if observed else None


@dataclass(frozen=True, slots=True)
class _Draft:
    """What speculative decoding adds to a replica."""

    layers: int = 0
    """Counted as layers of the target, so that their KV cache is never underestimated."""
    weight_bytes: int = 0
    """Of the drafting layers, over all devices of a replica."""


def _draft(tier: TierSpec, target: Geometry, findings: Findings, path: str) -> _Draft:
    speculative = tier.speculative
    if speculative is None or speculative.method is SpeculativeMethod.NGRAM:
        return _Draft()
    if speculative.method is not SpeculativeMethod.DRAFT_MODEL:
        # MTP and EAGLE add about one layer of the target.
        return _Draft(layers=1, weight_bytes=target.layer_weight_bytes)
    assert speculative.model is not None  # the schema's rule
    entry = find_model(speculative.model)
    if entry is None:
        findings.error(
            f"{path}.speculative.model",
            f"{speculative.model!r} is not in the catalog, so its KV cache cannot be sized;"
            " use a catalog model, or method EAGLE3, MTP or NGram",
            Reason.UNKNOWN_MODEL,
        )
        return _Draft()
    draft = Geometry.from_config(entry.config, entry.checkpoint_quantization)
    per_layer = max(1, target.kv_bytes_per_token(2) // target.num_layers)
    return _Draft(
        layers=-(-draft.kv_bytes_per_token(2) // per_layer),
        weight_bytes=draft.layer_weight_bytes * draft.num_layers,
    )


def _check_parallelism(geometry: Geometry, accelerator: EffectiveAccelerator, path: str, findings: Findings) -> None:
    if (problem := uneven_heads(geometry.num_attention_heads, accelerator.per_replica)) is not None:
        findings.error(f"{path}.perReplica", problem)


def _check_mtp(tier: TierSpec, known: KnownModel, path: str, findings: Findings) -> None:
    speculative = tier.speculative
    if speculative is None or speculative.method is not SpeculativeMethod.MTP or known.geometry.has_mtp:
        return
    findings.error(
        f"{path}.speculative.method",
        f"{known.spec.id} has no layers for multi-token prediction, and vLLM refuses the method ('Unsupported"
        " speculative method: mtp'); use NGram, or EAGLE3 or DraftModel with a draft made for it",
    )


def _check_thinking(tier: TierSpec, known: KnownModel, path: str, findings: Findings) -> None:
    budget = max(effort.thinking_tokens for effort in tier.efforts)
    entry = known.entry
    if tier.workload is Workload.CHAT:
        if entry is not None and entry.thinks_by_default and entry.thinking_switch is None:
            findings.warning(
                f"{path}.workload",
                f"{known.spec.id} always thinks; thinking cannot be turned off and counts against answerTokens",
            )
        return
    if 0 < budget < LEAST_THINKING_TOKENS:
        findings.warning(
            f"{path}.efforts",
            f"the largest thinking budget is {budget} tokens; below {LEAST_THINKING_TOKENS} most reasoning"
            " models are cut off mid-thought",
        )
    if budget == 0:
        findings.warning(f"{path}.efforts", "no effort of this Reasoning tier has thinkingTokens; use workload Chat")
    if budget and entry is not None and not entry.thinking_budget_enforceable:
        findings.warning(
            f"{path}.efforts",
            f"vLLM cannot enforce a thinking budget with the parser {entry.reasoning_parser}: thinking may use"
            " answerTokens too; the sizing holds, since it counts both",
            Reason.NOT_ENFORCEABLE,
        )


def _check_tier(tier: TierSpec, path: str, findings: Findings) -> None:
    largest = max(tier.efforts, key=lambda effort: effort.thinking_tokens + effort.answer_tokens)
    needed = tier.prompt_tokens + largest.thinking_tokens + largest.answer_tokens
    if tier.max_model_len is not None and tier.max_model_len < needed:
        findings.error(
            f"{path}.maxModelLen",
            f"{tier.max_model_len} tokens cannot hold a request of effort {largest.name}, which may have {needed}"
            " (prompt, thinking and answer): raise it to at least that, lower the budgets, or leave it out",
        )


def _check_shared_claims(pool: ReasoningPool, findings: Findings) -> None:
    """A ReadWriteOnce claim serves one node; whether it is one only the cluster knows, so this is a warning."""
    users: dict[str, list[tuple[int, int]]] = {}  # claim -> index and most replicas of each tier
    for index, tier in enumerate(pool.spec.tiers):
        cache = (tier.model or pool.spec.model).cache
        if cache and cache.claim_name:
            most = tier.scaling.max_replicas if tier.scaling else (tier.replicas if tier.replicas is not None else 1)
            users.setdefault(cache.claim_name, []).append((index, most))
    for claim, tiers in users.items():
        if len(tiers) > 1 or tiers[0][1] > 1:
            first = WrittenTier(pool.spec, tiers[0][0])
            findings.of(first.tier.name if first.tier.model else None).warning(
                first.model("cache.claimName"),
                f"the cache claim {claim} is shared by several replicas: it must be ReadWriteMany, or use"
                " cache.claimTemplate for a claim per replica",
            )

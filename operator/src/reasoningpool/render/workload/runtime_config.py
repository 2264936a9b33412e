"""The ConfigMap with a tier's budgets, which the request runtime reads, and reads anew when it changes."""

from __future__ import annotations

from typing import Final

from reasoningpool.api import names
from reasoningpool.objects import Manifest
from reasoningpool.render.metadata import PoolIdentity, object_meta, tier_labels
from reasoningpool.render.pod.runtime import CONFIG_KEY
from reasoningpool.resolution.types import EffectiveModel, EffectiveRuntime, EffectiveTier
from reasoningpool.vllm import runtime_contract as contract

# The forecast's aim, as a share of the tier's risk: with half of it what is preempted stays below the whole
# (docs/runtime-admission.md: 0.4 to 0.9 % for a risk of 1 %).
_AIM: Final = 0.5


def runtime_config_map(pool: PoolIdentity, tier: EffectiveTier, runtime: EffectiveRuntime) -> Manifest:
    """The ConfigMap of a tier; a change of it restarts nothing."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_meta(pool, names.runtime_config_name(pool.name, tier.name), tier_labels(pool, tier.name)),
        "data": {CONFIG_KEY: contract.dumps(runtime_config(tier, runtime))},
    }


def runtime_config(tier: EffectiveTier, runtime: EffectiveRuntime) -> contract.RuntimeConfig:
    """What the runtime of this tier enforces."""
    inputs = tier.sizing_input
    tenants = contract.Tenants()
    if runtime.tenant_header is not None:
        tenants = contract.Tenants(source=contract.TenantSource.HEADER, header=runtime.tenant_header)
    return contract.RuntimeConfig(
        tier=tier.name,
        efforts=tuple(
            contract.Effort(
                name=effort.name, thinking_tokens=effort.thinking_tokens, answer_tokens=effort.answer_tokens
            )
            for effort in inputs.efforts
        ),
        default_effort=runtime.default_effort,
        prompt_tokens=max(effort.prompt_tokens for effort in inputs.efforts) + inputs.template_overhead_tokens,
        over_budget=contract.OverBudget(str(runtime.over_budget)),
        thinking=_thinking(tier.model, show=runtime.show_thinking),
        tenants=tenants,
        admission=contract.Admission(preempted_share=_AIM * inputs.preemption_risk_permille / 1000),
    )


def _thinking(model: EffectiveModel, *, show: bool) -> contract.Thinking:
    switch = model.thinking_switch
    return contract.Thinking(
        supported=model.reasoning_parser is not None,
        budget_enforceable=model.thinking_budget_enforceable,
        on={} if switch is None else {switch: True},
        off={} if switch is None else {switch: False},
        show=show,
    )

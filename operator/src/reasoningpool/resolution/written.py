"""Where in the user's file a value stands that a tier uses: in the tier, or in the pool's part that it inherits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, assert_never

from reasoningpool.api.spec import ReasoningPoolSpec
from reasoningpool.api.spec_tier import TierSpec
from reasoningpool.model.errors import SizingAttribute
from reasoningpool.resolution.engine import merge_engine


class Part(Enum):
    """The parts of the spec in which a tier's values stand."""

    NOWHERE = auto()  # decided here, or measured
    TIER = auto()
    MODEL = auto()
    ACCELERATOR = auto()
    ENGINE = auto()  # by the attribute of `EngineSpec`
    EFFORT = auto()
    DISTRIBUTION = auto()


# Where each input of the calculation is written. A test holds that none is missing.
HOMES: Final[Mapping[SizingAttribute, tuple[Part, str]]] = {
    "accelerator": (Part.ACCELERATOR, ""),
    "memory_bytes": (Part.ACCELERATOR, "custom.memory"),
    "tensor_parallel_size": (Part.ACCELERATOR, "perReplica"),
    "geometry": (Part.MODEL, ""),
    "weight_bytes": (Part.MODEL, ""),
    "vision_weight_bytes": (Part.MODEL, ""),
    "kv_cache_dtype": (Part.ENGINE, "kv_cache_dtype"),
    "memory_utilization_permille": (Part.ENGINE, "memory_utilization_percent"),
    "kv_cache_memory_bytes": (Part.ENGINE, "kv_cache_memory"),
    "engine_version": (Part.ENGINE, "version"),
    "prefix_caching": (Part.ENGINE, "prefix_caching"),
    "enforce_eager": (Part.ENGINE, "enforce_eager"),
    "expert_parallel": (Part.ENGINE, "extra_args"),
    "load_bandwidth_bytes_per_s": (Part.ENGINE, "load_bandwidth"),
    "policy": (Part.TIER, "concurrency.policy"),
    "preemption_risk_permille": (Part.TIER, "concurrency.preemptionRiskPermille"),
    "shared_prefix_tokens": (Part.TIER, "sharedPrefixTokens"),
    "speculative_tokens": (Part.TIER, "speculative.tokens"),
    "speculative_draft_layers": (Part.TIER, "speculative"),
    "draft_weight_bytes": (Part.TIER, "speculative"),
    "max_num_seqs": (Part.TIER, "maxNumSeqs"),
    "max_model_len": (Part.TIER, "maxModelLen"),
    "max_num_batched_tokens": (Part.TIER, "maxNumBatchedTokens"),
    "block_size": (Part.TIER, "blockSize"),
    "time_per_output_token_ms": (Part.TIER, "objectives.timePerOutputTokenMilliseconds"),
    "pre_stop_seconds": (Part.TIER, "podOverrides.preStopSeconds"),
    "efforts": (Part.TIER, "efforts"),
    "prompt_tokens": (Part.TIER, "promptTokens"),
    "name": (Part.EFFORT, "name"),
    "thinking_tokens": (Part.EFFORT, "thinkingTokens"),
    "answer_tokens": (Part.EFFORT, "answerTokens"),
    "share": (Part.EFFORT, "sharePercent"),
    "prompt_distribution": (Part.DISTRIBUTION, "prompt"),
    "output_distribution": (Part.DISTRIBUTION, "output"),
    "observed": (Part.DISTRIBUTION, ""),
    "template_overhead_tokens": (Part.NOWHERE, ""),
    "measured_num_blocks": (Part.NOWHERE, ""),
    "measured_block_size": (Part.NOWHERE, ""),
}


@dataclass(frozen=True, slots=True)
class WrittenTier:
    """The paths of one tier's values, such as `spec.engine.kvCacheMemory`.

    A value that stands nowhere is named where a user would put it for all tiers.
    """

    spec: ReasoningPoolSpec
    index: int

    @property
    def tier(self) -> TierSpec:
        """The tier as it was written."""
        return self.spec.tiers[self.index]

    @property
    def path(self) -> str:
        """The tier itself."""
        return f"spec.tiers[{self.index}]"

    def own(self, field: str) -> str:
        """A field that only tiers have."""
        return f"{self.path}.{field}"

    def model(self, field: str = "") -> str:
        """The model, or a field of it."""
        return f"{self.path if self.tier.model is not None else 'spec'}.model{field and '.'}{field}"

    def accelerator(self, field: str = "") -> str:
        """The accelerator, or a field of it."""
        return f"{self.path if self.tier.accelerator is not None else 'spec'}.accelerator{field and '.'}{field}"

    def engine(self, attribute: str) -> str:
        """A field of the engine, by its attribute in `EngineSpec`: each is inherited on its own."""
        return merge_engine(self.spec.engine, self.tier, self.path).path(attribute)

    def effort(self, name: str | None, field: str) -> str:
        """A field of one of the tier's efforts."""
        names = [effort.name for effort in self.tier.efforts]
        return self.own(f"efforts[{names.index(name)}].{field}" if name in names else "efforts")

    def distribution(self, effort: str | None, side: str = "") -> str:
        """What was observed of an effort's token counts: `prompt`, `output`, or both."""
        names = [entry.effort for entry in self.tier.token_distribution or ()]
        below = side and f".{side}"
        return self.own(
            f"tokenDistribution[{names.index(effort)}]{below}" if effort in names else f"tokenDistribution{below}"
        )

    def sizing(self, attribute: SizingAttribute | None, effort: str | None = None) -> str:
        """Where an input of the calculation comes from; the tier itself where no field says it."""
        if attribute is None:
            return self.path
        part, field = HOMES[attribute]
        match part:
            case Part.NOWHERE:
                return self.path
            case Part.TIER:
                return self.own(field)
            case Part.MODEL:
                return self.model(field)
            case Part.ACCELERATOR:
                return self.accelerator(field)
            case Part.ENGINE:
                return self.engine(field)
            case Part.EFFORT:
                return self.effort(effort, field)
            case Part.DISTRIBUTION:
                return self.distribution(effort, field)
            case _:
                assert_never(part)

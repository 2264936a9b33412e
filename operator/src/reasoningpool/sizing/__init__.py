"""The one calculation: from token budgets, model geometry and accelerator to the engine's limits (docs/sizing.md).

Pure: no Kubernetes, no clock, no files. `plan` is the entry; `Geometry.from_config` reads a model.
"""

from reasoningpool.model.errors import GeometryError, SizingError
from reasoningpool.model.geometry import Geometry, valid_tensor_parallel_sizes
from reasoningpool.sizing.curve import CurvePoint, throughput_curve
from reasoningpool.sizing.observed import ObservedTokens, observe
from reasoningpool.sizing.plan import plan
from reasoningpool.sizing.types import (
    AcceleratorFacts,
    Change,
    ConcurrencyPolicy,
    DoesNotFit,
    Effort,
    FitUnit,
    KVCacheDType,
    Limit,
    SizingInput,
    SizingPlan,
    SizingWarning,
    Step,
    TokenQuantiles,
)

__all__ = [
    "AcceleratorFacts",
    "Change",
    "ConcurrencyPolicy",
    "CurvePoint",
    "DoesNotFit",
    "Effort",
    "FitUnit",
    "Geometry",
    "GeometryError",
    "KVCacheDType",
    "Limit",
    "ObservedTokens",
    "SizingError",
    "SizingInput",
    "SizingPlan",
    "SizingWarning",
    "Step",
    "TokenQuantiles",
    "observe",
    "plan",
    "throughput_curve",
    "valid_tensor_parallel_sizes",
]

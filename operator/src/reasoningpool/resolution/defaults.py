"""What the operator decides where a spec says nothing. Changing one changes only pools that are edited afterwards."""

from __future__ import annotations

from typing import Final

from reasoningpool.api.pod_placement import TaintEffect, Toleration, TolerationOperator
from reasoningpool.sizing.constants import DEFAULT_UTILIZATION_PERCENT

# The stock image of the newest version whose arguments and KV planner the project is tested against.
ENGINE_IMAGE: Final = "vllm/vllm-openai:v0.33.0"
# The version whose `--mode validate` the rendered configuration passes in the tests.
GATEWAY_IMAGE: Final = "envoyproxy/envoy:v1.40.0"
GATEWAY_REPLICAS: Final = 2
MEMORY_UTILIZATION_PERCENT: Final = DEFAULT_UTILIZATION_PERCENT
PREEMPTION_RISK_PERMILLE: Final = 10
# Seconds between the end of routing and SIGTERM: endpoint changes reach every proxy within a few seconds.
PRE_STOP_SECONDS: Final = 10
# Role markers and the generation prompt that a chat template adds to a short conversation, in tokens.
TEMPLATE_OVERHEAD_TOKENS: Final = 32
MAX_UNAVAILABLE: Final = 1
GPU_RESOURCE: Final = "nvidia.com/gpu"
# What lies outside the engine's share of memory (CUDA context, libraries, parts of graph capture) takes about
# this much at least; a smaller rest ends in out-of-memory errors while graphs are captured (field report S13).
LEAST_REST_BYTES: Final = 1 << 30


def gpu_tolerations(resource_name: str) -> tuple[Toleration, ...]:
    """The taint that device plugins and cloud providers put on nodes is the resource's own name."""
    return (Toleration(key=resource_name, operator=TolerationOperator.EXISTS, effect=TaintEffect.NO_SCHEDULE),)

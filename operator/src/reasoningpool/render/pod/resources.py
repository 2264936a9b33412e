"""CPU and memory of the engine's container, and the size of /dev/shm.

Defaults, chosen to fit the smallest usual node of a product (an L4 beside 16 GiB of host memory) and to
grow with the tensor-parallel size T. They are the host's share only: weights and KV cache of a GPU engine
live on the GPU.

    GPU   CPU request        2 + T cores (one per worker, two for the API server and the scheduler)
          memory request     4 GiB + 4 GiB * T + /dev/shm
          memory limit       twice the request without /dev/shm + weights / 16, + /dev/shm
    CPU   CPU request        half a core (an idle server; it takes what is free)
          memory request     2 GiB + weights + KV cache + /dev/shm
          memory limit       4 GiB + 2 * weights + KV cache + /dev/shm
    shm   1 GiB at T = 1, else the larger of 4 GiB and 1 GiB * T, + the pool of offloaded KV

There is no CPU limit: throttling an inference server helps nobody. /dev/shm is charged to the container's
memory, so it is on top of what a user states for the container as well (field report S16).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Final

from reasoningpool.api import names
from reasoningpool.api.findings import Finding
from reasoningpool.api.pod_overrides import ResourceRequirements
from reasoningpool.api.scalars import amount, parse_quantity
from reasoningpool.render.pod.doubts import override_warning
from reasoningpool.resolution.types import EffectiveTier
from reasoningpool.sizing.types import SizingPlan

GIB: Final = 2**30
MIB: Final = 2**20
# vLLM keeps the offloaded KV in a file on /dev/shm; NCCL and the engine's message queues need their part too.
_SHM_SINGLE: Final = 1 * GIB
_SHM_PARALLEL: Final = 4 * GIB

Resources = dict[str, dict[str, str]]


def shared_memory_bytes(tier: EffectiveTier) -> tuple[int, Finding | None]:
    """Size of /dev/shm, and a warning where a stated size had to be raised."""
    ranks = tier.accelerator.per_replica
    base = _SHM_SINGLE if ranks == 1 else max(_SHM_PARALLEL, GIB * ranks)
    offload = 0 if tier.kv_offload is None else parse_quantity(tier.kv_offload.cpu_memory)
    stated = tier.overrides.shared_memory if tier.overrides else None
    if stated is None:
        return base + offload, None
    size = parse_quantity(stated)
    if offload and size < offload + _SHM_SINGLE:
        raised = offload + _SHM_SINGLE
        message = (
            f"podOverrides.sharedMemory: {stated} cannot hold the offloaded KV cache of kvOffload.cpuMemory"
            f" and 1Gi for the engine; raised to {quantity(raised)}"
        )
        return raised, override_warning(tier, "sharedMemory", message)
    return size, None


def engine_resources(tier: EffectiveTier, plan: SizingPlan, shared_memory: int) -> Resources:
    """Requests and limits of the engine with the user's merged over the defaults by resource.

    `shared_memory` is what /dev/shm may take; it is added to memory. A default never contradicts a stated
    amount: a request is lowered to a stated limit and a limit raised to a stated request.
    """
    stated = _stated(tier)
    requests, limits = (stated.requests or {}, stated.limits or {}) if stated else ({}, {})
    default_requests, default_limits = _defaults(tier, plan)
    merged_requests = {**default_requests, **{name: amount(value) for name, value in requests.items()}}
    merged_limits = {**default_limits, **{name: amount(value) for name, value in limits.items()}}
    for name in sorted(merged_requests.keys() & merged_limits.keys()):
        if name not in requests:
            merged_requests[name] = min(merged_requests[name], merged_limits[name])
        elif name not in limits:
            merged_limits[name] = max(merged_requests[name], merged_limits[name])
    for amounts in (merged_requests, merged_limits):
        if "memory" in amounts:
            amounts["memory"] += shared_memory
    resource = tier.accelerator.resource_name
    if resource is not None:
        merged_requests[resource] = merged_limits[resource] = Decimal(tier.accelerator.per_replica)
    return {"requests": _rendered(merged_requests), "limits": _rendered(merged_limits)}


def _stated(tier: EffectiveTier) -> ResourceRequirements | None:
    for container in (tier.overrides.containers if tier.overrides else None) or ():
        if container.name == names.ENGINE_CONTAINER:
            return container.resources
    return None


def _defaults(tier: EffectiveTier, plan: SizingPlan) -> tuple[dict[str, Decimal], dict[str, Decimal]]:
    ranks = plan.tensor_parallel_size
    weights = plan.weight_bytes_per_gpu * ranks
    if tier.accelerator.is_cpu:
        request = _whole(2 * GIB + weights + plan.kv_pool_bytes)
        limit = _whole(4 * GIB + 2 * weights + plan.kv_pool_bytes)
        return {"cpu": Decimal("0.5"), "memory": request}, {"memory": limit}
    request = _whole(4 * GIB + 4 * GIB * ranks)
    return {"cpu": Decimal(2 + ranks), "memory": request}, {"memory": 2 * request + _whole(weights // 16)}


def _whole(size: int) -> Decimal:
    """Rounded up to 256 MiB, so that a byte more in a model does not change the pod."""
    step = 256 * MIB
    return Decimal(-(-size // step) * step)


def _rendered(amounts: Mapping[str, Decimal]) -> dict[str, str]:
    return {name: _text(name, exact) for name, exact in sorted(amounts.items())}


def _text(name: str, exact: Decimal) -> str:
    if name == "memory" or name.endswith("storage") or name.startswith("hugepages-"):
        return quantity(int(exact.to_integral_value(rounding=ROUND_CEILING)))
    if exact == exact.to_integral_value():
        return str(int(exact))
    return f"{int((exact * 1000).to_integral_value(rounding=ROUND_CEILING))}m"


def quantity(size: int) -> str:
    """Bytes as a quantity in Gi or Mi where that is exact.

    >>> quantity(2**30), quantity(3 * 2**29), quantity(1024)
    ('1Gi', '1536Mi', '1024')
    """
    for suffix, unit in (("Gi", GIB), ("Mi", MIB)):
        if size and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)

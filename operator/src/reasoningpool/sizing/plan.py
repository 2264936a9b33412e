"""`plan`: the one calculation (docs/sizing.md), from budgets, geometry and accelerator to engine limits."""

from __future__ import annotations

from reasoningpool.sizing import constants, latency
from reasoningpool.sizing.advice.narrative import shortfall_steps, solution_steps, solution_warnings
from reasoningpool.sizing.advice.suggestions import remedies
from reasoningpool.sizing.solve import Shortfall, Solution, solve
from reasoningpool.sizing.types import DoesNotFit, SizingInput, SizingPlan
from reasoningpool.sizing.units import permille
from reasoningpool.sizing.validate import validate


def plan(inputs: SizingInput) -> SizingPlan | DoesNotFit:
    """Derive the engine's limits, or say with numbers why the budgets do not fit and what would.

    Raises `SizingError` for inputs no plan can be made from. The same input gives the same answer.
    """
    validate(inputs)
    result = solve(inputs)
    if isinstance(result, Shortfall):
        changes = remedies(inputs, result)
        return DoesNotFit(
            what=result.what,
            unit=result.unit,
            needed=result.needed,
            available=result.available,
            suggestions=changes.texts,
            steps=shortfall_steps(result),
            warnings=(),
            changes=changes.changes,
        )
    return _plan_of(result)


def _plan_of(found: Solution) -> SizingPlan:
    frame, memory, layout = found.frame, found.memory, found.frame.layout
    inputs = frame.inputs
    blocks = memory.pool // layout.bytes_per_block
    longest_output = max(effort.output for effort in frame.efforts)
    shutdown = latency.shutdown_timeout_seconds(longest_output, found.tpot_ms)
    weights_total = memory.weights * inputs.tensor_parallel_size
    return SizingPlan(
        kv_bytes_per_token=layout.bytes_per_token,
        per_request_constant_bytes=layout.constant_blocks * layout.bytes_per_block,
        weight_bytes_per_gpu=memory.weights,
        activation_bytes=memory.activation,
        graph_bytes=memory.graphs,
        overhead_bytes=memory.overhead,
        reserve_bytes=memory.reserve,
        kv_pool_bytes=memory.pool,
        block_size=layout.block_size,
        bytes_per_block=layout.bytes_per_block,
        num_blocks=blocks,
        usable_kv_tokens=(blocks - 1) * layout.block_size,
        footprint_tokens=frame.footprint,
        mean_resident_tokens=round(found.load.resident.mean),
        worst_case_num_seqs=found.worst_case,
        max_num_seqs=found.sequences,
        limited_by=found.limit,
        preempted_share_permille=permille(found.preempted_share),
        max_model_len=frame.max_model_len,
        max_num_batched_tokens=frame.batched_tokens,
        kv_cache_dtype=frame.dtype,
        tensor_parallel_size=inputs.tensor_parallel_size,
        time_per_output_token_ms=round(found.tpot_ms, 3),
        shutdown_timeout_seconds=shutdown,
        pre_stop_seconds=inputs.pre_stop_seconds,
        termination_grace_period_seconds=inputs.pre_stop_seconds + shutdown + constants.GRACE_MARGIN_S,
        startup_budget_seconds=latency.startup_budget_seconds(weights_total, inputs.load_bandwidth_bytes_per_s),
        steps=solution_steps(found, shutdown),
        warnings=solution_warnings(found),
    )

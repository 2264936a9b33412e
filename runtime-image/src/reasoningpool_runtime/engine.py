"""The only module that touches vLLM's internals (0.32 and 0.33).

Nothing here is needed to serve a request: where vLLM has changed, each function says so by its result and the runtime
does without.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from prometheus_client import REGISTRY

from reasoningpool_runtime.asgi import Scope

logger = logging.getLogger("reasoningpool.runtime")

# The budget of the request that the current task serves, where its API has no field for it.
THINKING_BUDGET: ContextVar[int | None] = ContextVar("reasoningpool_thinking_budget", default=None)

_PREEMPTIONS = "vllm:num_preemptions_total"
_REQUESTS = (
    ("vllm.entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest"),  # also serves /v1/messages
    ("vllm.entrypoints.openai.responses.protocol", "ResponsesRequest"),
)


def carry_thinking_budget() -> bool:
    """Have requests take their budget from THINKING_BUDGET when it is set. False: this vLLM cannot."""
    try:
        for module, name in _REQUESTS:
            _wrap(getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError) as error:
        logger.warning("thinking budgets on /v1/responses and /v1/messages: not with this vLLM (%s)", error)
        return False
    return True


def _wrap(request_class: Any) -> None:
    original = request_class.to_sampling_params
    if getattr(original, "reasoningpool", False):
        return

    @functools.wraps(original)
    def to_sampling_params(self: Any, *args: Any, **kwargs: Any) -> Any:
        params = original(self, *args, **kwargs)
        budget = THINKING_BUDGET.get()
        if budget is not None:
            params.thinking_token_budget = budget
        return params

    to_sampling_params.reasoningpool = True  # type: ignore[attr-defined]
    request_class.to_sampling_params = to_sampling_params


@dataclass(frozen=True)
class Usage:
    """Tokens of a finished request, all of its outputs together. `thinking` is None where vLLM does not tell."""

    prompt: int
    output: int
    thinking: int | None


def usage_of(scope: Scope) -> Usage | None:
    """What vLLM leaves for middleware when a request has finished; None where it has not."""
    metadata = (scope.get("state") or {}).get("request_metadata")
    info = getattr(metadata, "final_usage_info", None)
    if info is None:
        return None
    details = getattr(info, "completion_tokens_details", None)
    return Usage(info.prompt_tokens, info.completion_tokens or 0, getattr(details, "reasoning_tokens", None))


@dataclass(frozen=True)
class Output:
    """How far one output of a running request has come."""

    index: int
    prompt_tokens: int
    generated_tokens: int


def outputs_of(scope: Scope) -> Iterator[Output]:
    """The running outputs of a request; none where it has not started, has ended, or vLLM does not tell."""
    metadata = (scope.get("state") or {}).get("request_metadata")
    processor = getattr(_engine_client(scope), "output_processor", None)
    if metadata is None or processor is None:
        return
    states, ids = processor.request_states, processor.external_req_ids
    internal = list(ids.get(metadata.request_id, ()))
    prompt = 0
    while more := ids.get(f"{metadata.request_id}-{prompt}"):  # /v1/completions numbers its prompts
        internal += more
        prompt += 1
    for position, one in enumerate(internal):
        if (state := states.get(one)) is not None and state.detokenizer is not None:
            index = position if prompt else state.request_index
            yield Output(index, state.prompt_len, state.detokenizer.num_output_tokens())


@dataclass(frozen=True)
class Pool:
    """The engine's KV pool. `blocks` excludes the null block."""

    blocks: int
    block_tokens: int
    max_sequences: int | None


def pool_of(scope: Scope) -> Pool | None:
    """The pool as the engine reports it; None where it does not."""
    config = getattr(_engine_client(scope), "vllm_config", None)
    try:
        blocks, size = config.cache_config.num_gpu_blocks, config.cache_config.block_size  # type: ignore[union-attr]
        sequences = config.scheduler_config.max_num_seqs  # type: ignore[union-attr]
    except AttributeError:
        return None
    if not isinstance(blocks, int) or not isinstance(size, int) or blocks < 2:
        return None
    return Pool(blocks - 1, size, sequences if isinstance(sequences, int) else None)


def processes_of(scope: Scope) -> int:
    """How many API-server processes share the engine."""
    count = getattr(getattr(_state(scope), "args", None), "api_server_count", None)
    return count if isinstance(count, int) and count > 0 else 1


def tells_outputs(scope: Scope) -> bool:
    """Whether `outputs_of` works with this vLLM."""
    processor = getattr(_engine_client(scope), "output_processor", None)
    return hasattr(processor, "request_states") and hasattr(processor, "external_req_ids")


def preemptions() -> float | None:
    """Requests that the engine has preempted since its start; None where it does not tell."""
    found = REGISTRY.restricted_registry([_PREEMPTIONS]).collect()
    samples = [sample.value for metric in found for sample in metric.samples if sample.name == _PREEMPTIONS]
    return sum(samples) if samples else None


def on_shutdown(scope: Scope, call: Callable[[], None]) -> bool:
    """Call `call` when SIGTERM makes vLLM stop its engine, which it does before it closes the port."""
    client = _engine_client(scope)
    shutdown = getattr(client, "shutdown", None)
    if shutdown is None:
        return False

    @functools.wraps(shutdown)
    def announced(*args: Any, **kwargs: Any) -> Any:
        call()
        return shutdown(*args, **kwargs)

    client.shutdown = announced
    return True


def api_key_of(scope: Scope) -> str | None:
    """A key that vLLM accepts, for requests of the runtime's own."""
    keys = getattr(getattr(_state(scope), "args", None), "api_key", None) or []
    return next((key for key in keys if key), None)


def model_of(scope: Scope) -> str | None:
    """A name that the model is served under."""
    models = getattr(_state(scope), "openai_serving_models", None)
    paths = getattr(models, "base_model_paths", None) or []
    return next((path.name for path in paths), None)


def _state(scope: Scope) -> Any:
    return getattr(scope.get("app"), "state", None)


def _engine_client(scope: Scope) -> Any:
    return getattr(_state(scope), "engine_client", None)

"""How many tokens a prompt has: estimated, or counted by vLLM where it may be too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reasoningpool_runtime.errors import RefusalError
from reasoningpool_runtime.inner import InnerCall, InnerCallError

if TYPE_CHECKING:
    from reasoningpool_runtime.asgi import Scope
    from reasoningpool_runtime.contract import RuntimeConfig
    from reasoningpool_runtime.plan import Plan
    from reasoningpool_runtime.runtime import Runtime

# Of usual text and tokenizers: 2.5 (some languages) to 4.5 (English). A low figure overestimates a prompt a little.
_BYTES_PER_TOKEN = 3.0
# A text that is shorter than this per allowed token is not counted. One of fewer bytes per token could pass that is
# longer than allowed; the engine's own limit still holds, and cuts its output instead.
_SURELY_SHORT_BYTES_PER_TOKEN = 2


async def check_prompt(runtime: Runtime, config: RuntimeConfig, plan: Plan, scope: Scope) -> int:
    """The prompt's tokens, for admission.

    Raises:
        RefusalError: the prompt is longer than the tier allows (400).
    """
    size = plan.prompt
    text_bytes = size.text_bytes
    estimate = size.tokens + round(text_bytes / _BYTES_PER_TOKEN)
    limit = config.prompt_tokens
    if limit is None:
        return estimate
    if size.tokens // size.prompts > limit or text_bytes // size.prompts > limit * _SURELY_SHORT_BYTES_PER_TOKEN:
        counted = [await _count(runtime, text, scope) for text in _to_count(plan)]
        tokens = size.tokens + sum(counted)
        longest = max(tokens // size.prompts, max(counted, default=0) if size.prompts > 1 else 0)
        if longest > limit:
            raise RefusalError(
                400,
                "prompt_too_long",
                f"The prompt has {longest} tokens; tier {config.tier!r} allows {limit}. Shorten it.",
                param="prompt",
            )
        return tokens
    return min(estimate, limit * size.prompts)


def _to_count(plan: Plan) -> list[str]:
    """The texts to count: each prompt of a batch by itself, all parts of one prompt together."""
    return list(plan.prompt.texts) if plan.prompt.prompts > 1 else ["\n".join(plan.prompt.texts)]


async def _count(runtime: Runtime, text: str, scope: Scope) -> int:
    try:
        body = {"prompt": text, "add_special_tokens": False}
        async with InnerCall(runtime.app, scope, "/tokenize", body) as call:
            answer = await call.json()
            return int(answer["count"])
    except (InnerCallError, KeyError, TypeError, ValueError):
        return round(len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN)

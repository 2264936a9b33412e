"""A tier that does not fit, for programs."""

from __future__ import annotations

from typing import Any

from reasoningpool.sizing import DoesNotFit


def shortfall_json(answer: DoesNotFit) -> dict[str, Any]:
    """`neededBytes`, `availableBytes`, `missingBytes` of a GPU; `neededTokens` and so on for the context."""
    unit = answer.unit.value.capitalize()
    return {
        "what": answer.what,
        f"needed{unit}": answer.needed,
        f"available{unit}": answer.available,
        f"missing{unit}": answer.missing,
        "suggestions": list(answer.suggestions),
    }

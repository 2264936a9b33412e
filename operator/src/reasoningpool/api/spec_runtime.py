"""The request runtime inside the serving pod."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from reasoningpool.api.base import ApiModel
from reasoningpool.api.scalars import Flag, ImageReference


class OverBudget(StrEnum):
    """What happens to a request that asks for more than its tier allows."""

    CLAMP = "Clamp"
    REFUSE = "Refuse"


class RuntimeSpec(ApiModel):
    """The request runtime: budgets per request, admission by forecast, its metrics, a readiness that knows drains."""

    enabled: Flag | None = None
    """Default: true where an image of the runtime is known, by this field's neighbour or by the operator's option."""
    image: ImageReference | None = None
    """Image that an init container copies the runtime from. Default: the operator's option --runtime-image."""
    over_budget: OverBudget | None = None
    """Clamp serves what the tier allows and says so in a header, Refuse answers 400. Default: Clamp."""
    show_thinking: Flag | None = None
    """Whether responses contain the thinking text. Default: true."""
    tenant_header: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None
    ) = None
    """Request header that tells tenants apart, so that none shares prefix-cache entries with another. Default: none."""

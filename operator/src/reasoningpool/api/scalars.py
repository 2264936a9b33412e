"""Scalar types of the resource: bounded, so that CEL stays within its cost limits and nothing absurd is stored.

Every string that may reach a command line or an object name has a pattern; patterns use RE2 syntax
without look-around, since the API server evaluates them too.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]{1,3})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")
_SUFFIX: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
}


def exact_quantity(value: str | int) -> Decimal:
    """A Kubernetes quantity as an exact number.

    Raises:
        ValueError: the text is no quantity.
    """
    match = _QUANTITY.match(str(value))
    if match is None:
        msg = f"{value!r} is not a Kubernetes quantity such as 512Mi, 64Gi or 4"
        raise ValueError(msg)
    return Decimal(match[1]) * _SUFFIX[match[2] or ""]


def parse_quantity(value: str | int) -> int:
    """A Kubernetes quantity in whole units, rounded up as Kubernetes does.

    >>> parse_quantity("64Gi"), parse_quantity("1500m"), parse_quantity(5)
    (68719476736, 2, 5)

    Raises:
        ValueError: the text is no quantity.
    """
    return int(exact_quantity(value).to_integral_value(rounding="ROUND_CEILING"))


def _check_quantity(value: Any) -> str | int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        msg = "must be a quantity such as 512Mi, 64Gi or 4"
        raise ValueError(msg)  # noqa: TRY004 - pydantic reports ValueError with the field's path
    if len(str(value)) > 20 or (isinstance(value, int) and value >= 2**63):
        msg = "must have at most 20 characters and, as a number, fit 64 bits"
        raise ValueError(msg)
    parse_quantity(value)
    return value


Quantity = Annotated[
    str | int,
    BeforeValidator(_check_quantity),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "pattern": QUANTITY_PATTERN, "maxLength": 20}),
]
"""A resource amount, possibly zero."""


def _check_size(value: Any) -> str | int:
    checked = _check_quantity(value)
    if parse_quantity(checked) <= 0:
        msg = "must be greater than zero"
        raise ValueError(msg)
    return checked


SIZE_RULE: Final = {
    "rule": "type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))",
    "message": "must be a quantity greater than zero, such as 512Mi or 64Gi",
}
Size = Annotated[
    str | int,
    BeforeValidator(_check_size),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 20,
            "x-kubernetes-validations": [SIZE_RULE],
        }
    ),
]
"""An amount of memory greater than zero."""

LEAST_BANDWIDTH: Final = 1_000_000  # bytes per second; less is a mistake, and times derived from it overflow


def _check_bandwidth(value: Any) -> str | int:
    checked = _check_quantity(value)
    if parse_quantity(checked) < LEAST_BANDWIDTH:
        msg = "must be at least 1M bytes per second"
        raise ValueError(msg)
    return checked


Bandwidth = Annotated[
    str | int,
    BeforeValidator(_check_bandwidth),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 20,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? self >= 1000000 :"
                    " (isQuantity(self) && quantity(self).compareTo(quantity('1M')) >= 0)",
                    "message": "must be at least 1M bytes per second",
                }
            ],
        }
    ),
]
"""Bytes per second."""


def _integer(minimum: int, maximum: int) -> Any:
    return Field(strict=True, ge=minimum, le=maximum)


Tokens = Annotated[int, _integer(0, 10_000_000)]
PositiveTokens = Annotated[int, _integer(1, 10_000_000)]
Replicas = Annotated[int, _integer(0, 1000)]
PositiveReplicas = Annotated[int, _integer(1, 1000)]
Percent = Annotated[int, _integer(1, 100)]
Permille = Annotated[int, _integer(1, 999)]
Seconds = Annotated[int, _integer(1, 86_400)]
Milliseconds = Annotated[int, _integer(1, 600_000)]
Flag = Annotated[bool, Field(strict=True)]

# Without a dash, so that <pool>-<tier> can be read in one way only (ADR 6).
TierName = Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z][a-z0-9]*$")]
ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
SecretKey = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
LabelKey = Annotated[
    str, Field(min_length=1, max_length=317, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
ResourceName = Annotated[
    str, Field(min_length=1, max_length=128, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
]
EnvName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]

# What ends up in the engine's arguments: no leading dash, no white space, no $(VAR) expansion.
ModelId = Annotated[
    str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$")
]
Revision = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
ServedName = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]
ParserName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
ImageReference = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")]
EngineVersion = Annotated[
    str, Field(min_length=1, max_length=63, pattern=r"^v?[0-9]+\.[0-9]+(\.[0-9]+)?([-.+a-z0-9]*)?$")
]
RelativePath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._/-]*$")]
MountPath = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^/[A-Za-z0-9._/-]*$")]

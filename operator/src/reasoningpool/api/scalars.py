"""Scalar types of the resource: bounded, so that CEL stays within its cost limits and nothing absurd is stored.

Every string that may reach a command line or an object name has a pattern; patterns use RE2 syntax
without look-around, since the API server evaluates them too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

_MOST_CHARACTERS: Final = 20
QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]{1,3})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]{1,3})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", re.ASCII)
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
    match = _QUANTITY.fullmatch(str(value))
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


def amount(value: str | int) -> Decimal:
    """A quantity as a number, exact below one (CPU in millis)."""
    text = str(value)
    if text.endswith("m"):
        return Decimal(text[:-1]) / 1000
    if "." in text and text[-1].isdigit():
        return Decimal(text)
    return Decimal(parse_quantity(value))


@dataclass(frozen=True, slots=True)
class Between:
    """A quantity from `least` to `most`, both included; text or a whole number.

    The schema says it as a pattern, which the API server checks first, and a rule for the bounds.
    """

    least: str
    most: str
    unit: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        amount = "quantity(string(self))"
        rule = (
            f"isQuantity(string(self)) && {amount}.compareTo(quantity('{self.least}')) >= 0"
            f" && {amount}.compareTo(quantity('{self.most}')) <= 0"
        )
        return {
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": _MOST_CHARACTERS,
            "x-kubernetes-validations": [{"rule": rule, "message": self._message()}],
        }

    def _message(self) -> str:
        return f"must be from {self.least} to {self.most}{self.unit}"

    def _checked(self, value: Any) -> str | int:
        if isinstance(value, bool) or not isinstance(value, (str, int)) or not _QUANTITY.fullmatch(str(value)):
            msg = "must be a quantity such as 512Mi, 64Gi or 4"
            raise ValueError(msg)
        if len(str(value)) > _MOST_CHARACTERS:
            msg = f"must have at most {_MOST_CHARACTERS} characters"
            raise ValueError(msg)
        if not exact_quantity(self.least) <= exact_quantity(value) <= exact_quantity(self.most):
            raise ValueError(self._message())
        return value


Quantity = Annotated[str | int, Between("0", "1P")]
"""An amount of a resource in a pod."""
Memory = Annotated[str | int, Between("1Mi", "16Ti")]
"""An amount of memory, of a device or a host; more than any has is a mistake in the unit."""
Storage = Annotated[str | int, Between("1Mi", "1Pi")]
"""An amount of disk."""
Bandwidth = Annotated[str | int, Between("1M", "1P", " bytes per second")]
"""Bytes per second; times derived from less would overflow, and no device has more."""


# Neither an environment variable nor an argument nor a file of text can carry NUL.
TEXT_PATTERN: Final = r"^[^\x00]*$"


def free_text(maximum: int, *, minimum: int = 0) -> Any:
    """Bounds of a string whose content is the user's: any characters but NUL."""
    return Field(min_length=minimum or None, max_length=maximum, pattern=TEXT_PATTERN)


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

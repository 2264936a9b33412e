# Generated from runtime-image/src/reasoningpool_runtime/contract.py by `make generate`.
"""What the operator and the runtime agree on: the configuration file, header names, variable names, paths.

Standard library only and free of side effects: the operator carries a generated copy of this very file. A field is
`snake_case` here and `camelCase` in the file. Token counts are per request.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

CONTRACT_VERSION = 1

# What vLLM is started with: `--middleware reasoningpool_runtime.Middleware`.
MIDDLEWARE = "reasoningpool_runtime.Middleware"

# Environment of the vLLM container.
CONFIG_VARIABLE = "REASONINGPOOL_RUNTIME_CONFIG"  # path of the configuration file
STATE_DIR_VARIABLE = "REASONINGPOOL_RUNTIME_STATE_DIR"  # directory shared by all processes of the server
SALT_SECRET_VARIABLE = "REASONINGPOOL_RUNTIME_SALT_SECRET"  # noqa: S105 - the name of a variable
DEFAULT_CONFIG_PATH = "/etc/reasoningpool/runtime/config.json"
DEFAULT_STATE_DIR = "/tmp/reasoningpool-runtime"  # noqa: S108 - per container

# Request headers.
EFFORT_HEADER = "x-reasoning-effort"

# Response headers.
TIER_HEADER = "x-reasoningpool-tier"
APPLIED_EFFORT_HEADER = "x-reasoningpool-effort"
THINKING_BUDGET_HEADER = "x-reasoningpool-thinking-budget"
MAX_TOKENS_HEADER = "x-reasoningpool-max-tokens"
CLAMPED_HEADER = "x-reasoningpool-clamped"  # the fields that asked for more than the tier allows
ENFORCED_HEADER = "x-reasoningpool-budget-enforced"  # "thinking" or "total"
CLOSED_HEADER = "x-reasoningpool-thinking-closed"  # "true": the runtime ended the thinking

# Paths of the server's own port.
READY_PATH = "/reasoningpool/ready"
PROBE_PATH = "/reasoningpool/probe"


class ConfigError(ValueError):
    """The configuration is malformed; the text names the field by its path in the file."""


class OverBudget(StrEnum):
    """What happens to a request that asks for more than its tier allows."""

    CLAMP = "Clamp"  # served with what is allowed; a response header says so
    REFUSE = "Refuse"  # answered with 400


class InternalError(StrEnum):
    """What happens to a request when the runtime itself fails."""

    PASS_THROUGH = "PassThrough"  # noqa: S105 - no password; vLLM gets it as the client sent it
    REFUSE = "Refuse"  # 503


class KeepThinking(StrEnum):
    """Which thinking of earlier assistant messages stays in a request."""

    NEVER = "Never"
    TOOL_CALLS = "ToolCalls"  # of the tool calls since the last user message: what interleaved thinking needs
    ALWAYS = "Always"


class TenantSource(StrEnum):
    """What tells tenants apart."""

    NONE = "None"
    HEADER = "Header"
    API_KEY = "ApiKey"


class Closure(StrEnum):
    """When the runtime ends thinking by itself and has the model answer."""

    AUTO = "Auto"  # where the engine does not hold the thinking budget
    ALWAYS = "Always"
    NEVER = "Never"


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Budgets of one effort.

    `template_effort` is what the chat template gets as `reasoning_effort` (gpt-oss); None sends none.
    `expected_output_tokens` are equally likely output lengths that stand in for history until there is some.
    """

    name: str
    thinking_tokens: int
    answer_tokens: int
    template_effort: str | None = None
    expected_output_tokens: tuple[int, ...] = ()

    @property
    def total_tokens(self) -> int:
        """The most that a request of this effort may generate."""
        return self.thinking_tokens + self.answer_tokens

    def check(self) -> None:
        if not self.name:
            raise ConfigError("name is empty")
        if self.thinking_tokens < 0 or self.answer_tokens < 1:
            raise ConfigError(f"effort {self.name}: thinkingTokens must be at least 0 and answerTokens at least 1")


@dataclass(frozen=True, kw_only=True)
class Thinking:
    """How the model thinks, and what clients see of it.

    `on` and `off` are chat template arguments; without `off` thinking cannot be switched off and a budget of 0 is the
    next best. `budget_enforceable` is False where the reasoning parser has no start and end strings. `end_text` is
    what the runtime appends to end a thought by itself; default: `end` between newlines.
    """

    supported: bool = True
    budget_enforceable: bool = True
    on: Mapping[str, Any] = field(default_factory=dict)
    off: Mapping[str, Any] = field(default_factory=dict)
    start: str = "<think>"
    end: str = "</think>"
    end_text: str | None = None
    closure: Closure = Closure.AUTO
    show: bool = True
    keep: KeepThinking = KeepThinking.NEVER

    def check(self) -> None:
        if not self.start or not self.end:
            raise ConfigError("start and end must not be empty")

    @property
    def closing_text(self) -> str:
        """What ends a thought that ran out of budget."""
        return self.end_text if self.end_text is not None else f"\n{self.end}\n\n"


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """Who shares prefix cache entries with whom.

    `required` answers 400 where the header or key is missing; otherwise such requests share one salt of their own.
    """

    source: TenantSource = TenantSource.NONE
    header: str = "x-tenant-id"
    required: bool = False
    allow_client_salt: bool = False

    def check(self) -> None:
        if self.source is TenantSource.HEADER and not self.header:
            raise ConfigError("header must not be empty")


@dataclass(frozen=True, kw_only=True)
class TraceLog:
    """A sample of prompts, thinking and answers, as JSON lines. Off by default.

    `redaction` names a function (`module:function`) that takes the record and returns what is written, or None for
    nothing. `opted_out_tenants` are never written; a tenant is named as in the tenant header, a key by its SHA-256.
    """

    enabled: bool = False
    path: str = "/var/log/reasoningpool/traces.jsonl"
    sample_permille: int = 10
    max_records_per_minute: int = 30
    max_record_bytes: int = 16_384
    max_file_bytes: int = 64 * 2**20
    opted_out_tenants: tuple[str, ...] = ()
    redaction: str | None = None

    def check(self) -> None:
        if not 0 <= self.sample_permille <= 50:
            raise ConfigError("samplePermille must lie between 0 and 50 (5 %)")
        if self.max_records_per_minute < 1 or self.max_record_bytes < 256:
            raise ConfigError("maxRecordsPerMinute must be at least 1 and maxRecordBytes at least 256")


@dataclass(frozen=True, kw_only=True)
class Admission:
    """Which requests run and which wait. Off: everything runs at once and is only counted."""

    enabled: bool = True
    preempted_share: float = 0.005
    max_running: int | None = None
    max_queued_requests: int = 256
    max_queued_tokens: int = 4_000_000
    max_wait_seconds: float = 30.0

    def check(self) -> None:
        if not 0 < self.preempted_share < 1:
            raise ConfigError("preemptedShare must lie between 0 and 1")
        if self.max_running is not None and self.max_running < 1:
            raise ConfigError("maxRunning must be at least 1")
        if self.max_queued_requests < 0 or self.max_queued_tokens < 0 or self.max_wait_seconds < 0:
            raise ConfigError("maxQueuedRequests, maxQueuedTokens and maxWaitSeconds must not be negative")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig:
    """The configuration of one tier's servers.

    `prompt_tokens` is the longest prompt, None for as long as the model takes. `other_generating_paths` lets through
    the paths that generate without budgets (`/invocations`, `/inference/v1/generate`, ...); they are 404 otherwise.
    """

    version: int = CONTRACT_VERSION
    tier: str
    efforts: tuple[Effort, ...]
    default_effort: str
    prompt_tokens: int | None = None
    over_budget: OverBudget = OverBudget.CLAMP
    on_internal_error: InternalError = InternalError.PASS_THROUGH
    max_body_bytes: int = 32 * 2**20
    max_choices: int = 16
    other_generating_paths: bool = False
    retry_after_seconds: int = 5
    thinking: Thinking = Thinking()
    tenants: Tenants = Tenants()
    trace_log: TraceLog = TraceLog()
    admission: Admission = Admission()

    def check(self) -> None:
        if self.version != CONTRACT_VERSION:
            raise ConfigError(f"version is {self.version}; this runtime reads version {CONTRACT_VERSION}")
        names = [effort.name for effort in self.efforts]
        if not names or len(set(names)) != len(names):
            raise ConfigError("efforts must not be empty and their names must differ")
        if self.default_effort not in names:
            raise ConfigError(f"defaultEffort is {self.default_effort!r}, which is none of {', '.join(names)}")
        if self.prompt_tokens is not None and self.prompt_tokens < 1:
            raise ConfigError("promptTokens must be at least 1")
        if self.max_body_bytes < 1024 or self.max_choices < 1 or self.retry_after_seconds < 1:
            raise ConfigError("maxBodyBytes must be at least 1024, maxChoices and retryAfterSeconds at least 1")

    def effort(self, name: str) -> Effort | None:
        return next((effort for effort in self.efforts if effort.name == name), None)


def dumps(config: RuntimeConfig) -> str:
    """The file's text: sorted and indented, the same for equal configurations."""
    return json.dumps(_encode(config), indent=2, sort_keys=True) + "\n"


def loads(text: str | bytes) -> tuple[RuntimeConfig, tuple[str, ...]]:
    """The configuration in a file, and the paths in it that this version does not know and leaves alone.

    Raises:
        ConfigError: the text is no JSON, or a field is missing, malformed or out of range.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}") from error
    unknown: list[str] = []
    return _decode_object(RuntimeConfig, raw, "", unknown), tuple(unknown)


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {_camel(item.name): _encode(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


T = TypeVar("T")


def _decode_object(kind: type[T], raw: Any, path: str, unknown: list[str]) -> T:
    if not isinstance(raw, dict):
        raise ConfigError(f"{path or 'the file'} must be an object, not {_json_type(raw)}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    names = {_camel(item.name): item for item in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key, value in raw.items():
        if key not in names:
            unknown.append(f"{path}.{key}".lstrip("."))
        else:
            item = names[key]
            values[item.name] = _decode(hints[item.name], value, f"{path}.{key}".lstrip("."), unknown)
    for key, item in names.items():
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if required and item.name not in values:
            raise ConfigError(f"{f'{path}.{key}'.lstrip('.')} is missing")
    decoded = kind(**values)
    try:
        decoded.check()  # type: ignore[attr-defined]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from None
    return decoded


def _decode(hint: Any, raw: Any, path: str, unknown: list[str]) -> Any:
    origin = get_origin(hint)
    if origin in {Union, types.UnionType}:  # always `X | None` here
        inner = next(option for option in get_args(hint) if option is not type(None))
        return None if raw is None else _decode(inner, raw, path, unknown)
    if dataclasses.is_dataclass(hint):
        return _decode_object(hint, raw, path, unknown)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(raw, list):
            raise ConfigError(f"{path} must be a list, not {_json_type(raw)}")
        return tuple(_decode(get_args(hint)[0], item, f"{path}[{i}]", unknown) for i, item in enumerate(raw))
    if origin is Mapping:
        if not isinstance(raw, dict):
            raise ConfigError(f"{path} must be an object, not {_json_type(raw)}")
        return raw
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        if raw not in [member.value for member in hint]:
            raise ConfigError(f"{path} must be one of {', '.join(hint)}, not {raw!r}")
        return hint(raw)
    return _scalar(hint, raw, path)


def _scalar(hint: type, raw: Any, path: str) -> Any:
    wanted = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}[hint]
    fits = isinstance(raw, int | float) if hint is float else isinstance(raw, hint)
    if not fits or (hint is not bool and isinstance(raw, bool)):
        raise ConfigError(f"{path} must be {wanted}, not {_json_type(raw)}")
    return float(raw) if hint is float else raw


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"

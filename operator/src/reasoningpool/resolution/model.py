"""Which model a tier serves: its geometry and its parsers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from reasoningpool.api.conditions import Reason
from reasoningpool.api.findings import Findings
from reasoningpool.api.spec_model import ModelSpec, Quantization
from reasoningpool.api.spec_tier import Workload
from reasoningpool.catalog import find_model, parser_since, suggest_models
from reasoningpool.catalog.types import ModelEntry
from reasoningpool.model.config_reader import ConfigReader
from reasoningpool.model.errors import GeometryError
from reasoningpool.model.geometry import Geometry
from reasoningpool.model.quantization import doubtful_quantization
from reasoningpool.model.towers import TOWER_KEYS, Modality
from reasoningpool.resolution.types import EffectiveModel
from reasoningpool.sizing.types import EngineVersion

# What turns a parser off, in the spec and on the command line.
NO_PARSER: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model whose geometry is known; `entry` is None outside the catalog."""

    spec: ModelSpec
    path: str
    entry: ModelEntry | None
    geometry: Geometry
    weight_bytes: int | None
    leaves_towers_out: bool = False  # the model has encoders of other modalities, and the pool asks for text alone


def know_model(spec: ModelSpec, path: str, findings: Findings) -> KnownModel | None:
    """The model's geometry from configJSON or the catalog, None (and a finding) where there is neither."""
    entry = find_model(spec.id)
    config = _config(spec, path, entry, findings)
    if config is None:
        return None
    quantization = "fp8" if spec.quantization is Quantization.FP8 else _checkpoint_quantization(spec, entry)
    text = {key: value for key, value in config.items() if key not in TOWER_KEYS}
    leaves_out = spec.modalities is not None and set(spec.modalities) == {Modality.TEXT} and len(text) < len(config)
    try:
        geometry = Geometry.from_config(text if leaves_out else config, quantization)
    except GeometryError as error:
        where = "configJSON" if spec.config_json else "id"
        findings.error(f"{path}.{where}", str(error))
        return None
    _check_modalities(spec, geometry, path, findings)
    stated = entry.weight_bytes if entry and spec.config_json is None and spec.quantization is None else None
    return KnownModel(
        spec=spec, path=path, entry=entry, geometry=geometry, weight_bytes=stated, leaves_towers_out=leaves_out
    )


def _check_modalities(spec: ModelSpec, geometry: Geometry, path: str, findings: Findings) -> None:
    has = {Modality.TEXT, *(modality for modality, _ in geometry.towers)}
    for modality in sorted(set(spec.modalities or ()) - has):
        findings.error(
            f"{path}.modalities",
            f"{spec.id} takes {', '.join(sorted(has))}, not {modality.value}: its config.json has no encoder for it",
        )


def _checkpoint_quantization(spec: ModelSpec, entry: ModelEntry | None) -> str | None:
    # A config.json says itself what its checkpoint is; the geometry reads it from there.
    return entry.checkpoint_quantization if entry and spec.config_json is None else None


def _config(spec: ModelSpec, path: str, entry: ModelEntry | None, findings: Findings) -> Mapping[str, Any] | None:
    if spec.config_json is None:
        if entry is not None:
            return entry.config
        near = suggest_models(spec.id)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        findings.error(
            f"{path}.id",
            f"{spec.id!r} is not in the catalog{hint}: put the text of its config.json into {path}.configJSON",
            Reason.UNKNOWN_MODEL,
        )
        return None
    try:
        config = json.loads(spec.config_json, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        findings.error(
            f"{path}.configJSON", f"is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        )
        return None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or thousands of brackets
        findings.error(f"{path}.configJSON", f"is not a config.json: {error}")
        return None
    if not isinstance(config, dict):
        findings.error(
            f"{path}.configJSON", f"must be a JSON object, the text of config.json; not {type(config).__name__}"
        )
        return None
    if spec.quantization is None and (doubt := doubtful_quantization(ConfigReader.of(config))):
        findings.warning(f"{path}.configJSON", doubt)
    return config


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of a key that is written twice Python would take the last, and other readers the first."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            message = f"key {key!r:.60} is written twice"
            raise ValueError(message)
        found[key] = value
    return found


def resolve_model(
    known: KnownModel, workload: Workload, version: EngineVersion | None, findings: Findings
) -> EffectiveModel:
    """The model with its names and parsers decided."""
    spec, entry = known.spec, known.entry
    parsers = spec.parsers
    return EffectiveModel(
        id=spec.id,
        revision=spec.revision,
        served_name=spec.served_name or spec.id.rpartition("/")[2].lower(),
        source=spec.source,
        cache=spec.cache,
        quantization=spec.quantization,
        text_only=known.leaves_towers_out,
        reasoning_parser=_reasoning_parser(known, workload, version, findings),
        tool_call_parser=_checked(
            "toolCall",
            (parsers.tool_call if parsers else None) or (entry.tool_call_parser if entry else None),
            known,
            version,
            findings,
        ),
        thinking_switch=entry.thinking_switch if entry else "enable_thinking",
        thinking_budget_enforceable=entry.thinking_budget_enforceable if entry else True,
    )


def _reasoning_parser(
    known: KnownModel, workload: Workload, version: EngineVersion | None, findings: Findings
) -> str | None:
    entry, path = known.entry, f"{known.path}.parsers.reasoning"
    stated = known.spec.parsers.reasoning if known.spec.parsers else None
    own = entry.reasoning_parser if entry else None
    if stated is None:
        if workload is Workload.REASONING and own is None:
            findings.warning(
                path, f"no reasoning parser is known for {known.spec.id}: thinking will be part of the answer; set one"
            )
        # A family without a switch thinks whenever it likes; its parser would then swallow plain answers.
        quiet = workload is Workload.CHAT and entry is not None and entry.thinking_switch is None
        return None if quiet and not (entry and entry.parser_always_on) else own
    if stated == NO_PARSER:
        if entry and entry.parser_always_on:
            findings.warning(
                path, f"vLLM always parses the output of {entry.family} models; none does not turn that off"
            )
        return None
    if own is not None and stated != own:
        findings.warning(
            path,
            f"{entry.family if entry else known.spec.id} models use the parser {own}; with {stated} thinking"
            " and answer may end up in the wrong field",
        )
    return _checked("reasoning", stated, known, version, findings)


def _checked(
    kind: str, parser: str | None, known: KnownModel, version: EngineVersion | None, findings: Findings
) -> str | None:
    """The parser, with a finding where this engine version does not have it."""
    if parser is None or parser == NO_PARSER:
        return None
    path = f"{known.path}.parsers.{kind}"
    since = parser_since(kind, parser)
    if since is None:
        findings.warning(
            path,
            f"{parser!r} is not a parser of the vLLM version this operator was tested with; a plugin may provide it",
        )
    elif version is not None and version < since:
        findings.error(
            path, f"{parser!r} came with vLLM {'.'.join(map(str, since))}; this engine is {'.'.join(map(str, version))}"
        )
    return parser

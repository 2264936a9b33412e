"""Random objects that the CRD's schema admits: what the API server lets through but for the rules between fields."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from reasoningpool.catalog import accelerators, models
from support.pools import TINY_CONFIG, full

SCHEMA = yaml.safe_load((Path(__file__).parents[2] / "crds/reasoningpool.yaml").read_text())["spec"]["versions"][0][
    "schema"
]["openAPIV3Schema"]
_FEW = 4  # optional fields of an object, entries of a list
_PRODUCTS = sorted(accelerators())
_MODELS = sorted(models())
NESTED = 60_000


def _deep(opening: str, closing: str = "") -> str:
    return (opening * NESTED)[: 4096 - 40] + closing


FLAGS = (
    "--compilation-config", "--speculative-config", "--kv-transfer-config", "--hf-overrides",
    "--seed", "--max-num-seqs", "--port", "--dtype", "-O", "-O3", "--", "-", "--enforce-eager", "--chat-template",
    "--compilation_config.pass_config", "--no-enable-prefix-caching", "--logits-processors", "--middleware",
)  # fmt: skip
JSON_TEXTS = (
    '{"mode": 3}', "{}", "[]", "null", "NaN", '{"a": 1e999}', '{"a": "\\ud800"}', "9" * 4000,
    _deep("["), _deep('{"a":'), _deep("[{"), '{"' + "a" * 4000,
)  # fmt: skip
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200_000),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["bfloat16", "float8", "qwen3", "full_attention", "re:.*", "\ud800", "1e3", -1, 2**63, 10**30]),
)
JSON_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)


def config_texts() -> st.SearchStrategy[str]:
    """Texts of a config.json: a real one, one with other values in some of its keys, or something quite different."""
    real = [dict(entry.config) for entry in models().values()] + [json.loads(TINY_CONFIG)]
    keys = sorted({key for config in real for key in config} | {"quantization_config", "text_config", "layer_types"})

    @st.composite
    def mutated(draw) -> str:
        config = dict(draw(st.sampled_from(real)))
        config |= draw(st.dictionaries(st.sampled_from(keys), JSON_VALUES, max_size=3))
        for key in draw(st.lists(st.sampled_from(keys), max_size=2)):
            config.pop(key, None)
        return json.dumps(config)

    strange = st.sampled_from(["[" * NESTED, '{"a":' * 13_000, '{"text_config":' * 4_000, "{}", "", *JSON_TEXTS])
    return mutated() | strange | st.text(max_size=40)


_HINTS: dict[str, st.SearchStrategy[Any]] = {
    "configJSON": config_texts(),
    "product": st.sampled_from(_PRODUCTS),
    "extraArgs": st.lists(
        st.one_of(
            st.sampled_from(FLAGS),
            st.sampled_from(JSON_TEXTS),
            st.tuples(st.sampled_from(FLAGS), st.sampled_from(JSON_TEXTS)).map("=".join).map(lambda text: text[:4096]),
            st.text(st.characters(exclude_characters="\0"), max_size=20),
        ),
        max_size=6,
    ),
    "image": st.sampled_from(["vllm/vllm-openai:v0.33.0", "vllm/vllm-openai:latest", "a@sha256:0", "registry:5000/x"]),
}
_MODEL_IDS = st.sampled_from([*_MODELS, "example/unknown"])


@st.composite
def values(draw, schema: dict[str, Any], field: str = "") -> Any:
    """A value that this schema admits."""
    if field in _HINTS and draw(st.integers(0, 9)):
        return draw(_HINTS[field])
    if field == "id" and draw(st.integers(0, 9)):
        return draw(_MODEL_IDS)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if schema.get("x-kubernetes-int-or-string"):
        return draw(st.integers(0, 2**31 - 1) | _texts(schema.get("pattern", ""), 0, schema.get("maxLength", 20)))
    match schema["type"]:
        case "string":
            return draw(_texts(schema.get("pattern", ""), schema.get("minLength", 0), schema.get("maxLength", 64)))
        case "integer":
            low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
            small = st.integers(low, min(high, low + 64))
            return draw(st.sampled_from([low, high]) | small | small | st.integers(low, high))
        case "boolean":
            return draw(st.booleans())
        case "array":
            return draw(_lists(schema, field))
        case _:
            return draw(_objects(schema))


@cache
def _texts(pattern: str, least: int, most: int) -> st.SearchStrategy[str]:
    shown = st.from_regex(pattern.replace("$", r"\Z")) if pattern else st.text(max_size=24)
    ascii_only = pattern.startswith("^[") and not pattern.startswith("^[^")
    return shown.filter(lambda text: least <= len(text) <= most and (not ascii_only or text.isascii()))


@st.composite
def _lists(draw, schema: dict[str, Any], field: str) -> list[Any]:
    least = schema.get("minItems", 0)
    number = draw(st.integers(least, min(schema.get("maxItems", least + _FEW), least + _FEW)))
    found = [draw(values(schema["items"], field)) for _ in range(number)]
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        unique = {tuple(entry.get(key) for key in keys): entry for entry in found}
        return list(unique.values())
    return found


@st.composite
def _objects(draw, schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    if isinstance(schema.get("additionalProperties"), dict):
        names = st.sampled_from(["a", "b", "example.org/c", "nvidia.com/gpu", "cpu", "memory", "x" * 63, "-", "A/B/C"])
        return draw(st.dictionaries(names, values(schema["additionalProperties"]), max_size=3))
    required = schema.get("required", [])
    others = sorted(properties.keys() - set(required))
    chosen = draw(st.lists(st.sampled_from(others), unique=True, max_size=_FEW)) if others else []
    return {name: draw(values(properties[name], name)) for name in (*required, *chosen)}


def _whole(spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "llm", "uid": "u", "generation": 1}
    return {"apiVersion": "reasoningpool.io/v1alpha1", "kind": "ReasoningPool", "metadata": meta, "spec": spec}


@st.composite
def changed(draw) -> dict[str, Any]:
    """The spec that sets every field, with some of its fields left out and others drawn anew from the schema."""
    spec = full()["spec"]
    for _ in range(draw(st.integers(1, 4))):
        node, schema, at = spec, SCHEMA["properties"]["spec"], ""
        while True:
            inner = [key for key in node if key in schema.get("properties", {})] if isinstance(node, dict) else []
            if not inner:
                break
            at = draw(st.sampled_from(inner))
            below = schema["properties"][at]
            child = node[at]
            if draw(st.integers(0, 2)) == 0 or not isinstance(child, dict | list) or not child:
                if at not in schema.get("required", []) and draw(st.integers(0, 3)) == 0:
                    del node[at]
                else:
                    node[at] = draw(values(below, at))
                break
            if isinstance(child, list):
                index = draw(st.integers(0, len(child) - 1))
                if not isinstance(child[index], dict):
                    child[index] = draw(values(below["items"], at))
                    break
                node, schema = child[index], below["items"]
            else:
                node, schema = child, below
    return _whole(spec)


def pools() -> st.SearchStrategy[dict[str, Any]]:
    """A pool as the API server could hand it out."""
    return changed() | values(SCHEMA["properties"]["spec"]).map(_whole)

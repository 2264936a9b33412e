"""What was applied last, kept on the StatefulSet itself.

A live template says what runs now, not what was asked for: a hand edit, `kubectl rollout undo` or another tool may
have changed any of it, its revision included. So the template as it was applied, and what `settle` decides by, go
along in one annotation. Whoever edits the StatefulSet leaves it alone, and one that was edited does not unpack, so
that an edited template can be told from one that waits for its user's next change, and be put back.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from reasoningpool.api import names
from reasoningpool.objects import Manifest

ANNOTATION_APPLIED: Final = f"{names.GROUP}/applied"
# A template has a few kilobytes; nobody's annotation makes us unpack more than that many times over.
_MOST_BYTES: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The pod template as applied last, and the StatefulSet's bookkeeping annotations then."""

    template: Mapping[str, Any]
    annotations: Mapping[str, str]


def with_record(manifest: Manifest, annotations: tuple[str, ...]) -> Manifest:
    """The StatefulSet with the record of its template and of these of its annotations."""
    meta = manifest["metadata"]
    own = meta.get("annotations") or {}
    kept = {name: own[name] for name in annotations if name in own}
    text = json.dumps([manifest["spec"]["template"], kept], sort_keys=True, separators=(",", ":"))
    record = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return manifest | {"metadata": meta | {"annotations": {**own, ANNOTATION_APPLIED: record}}}


def record_of(live: Manifest) -> Applied | None:
    """The record of a live StatefulSet, None where there is none or it was edited."""
    text = (live["metadata"].get("annotations") or {}).get(ANNOTATION_APPLIED)
    if not text:
        return None
    try:
        packed = base64.b64decode(text, validate=True)
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(packed, _MOST_BYTES)
        template, annotations = json.loads(plain) if unpacking.eof and not unpacking.unused_data else (None, None)
    except (ValueError, TypeError, RecursionError, zlib.error):
        return None
    if not _is_template(template) or not isinstance(annotations, dict):
        return None
    return Applied(template=template, annotations={str(name): str(value) for name, value in annotations.items()})


def has_record(live: Manifest) -> bool:
    """Whether there is anything in its place; StatefulSets of earlier versions have none."""
    return ANNOTATION_APPLIED in (live["metadata"].get("annotations") or {})


def _is_template(value: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict):
        return False
    meta, spec = value.get("metadata"), value.get("spec")
    return isinstance(meta, dict) and isinstance(meta.get("annotations"), dict) and isinstance(spec, dict)

"""Manifests as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from typing_extensions import override

from reasoningpool.objects import Manifest


def yaml_text(manifests: Sequence[Manifest], *, allow_unicode: bool) -> str:
    """One document per manifest, without anchors, and texts of several lines as blocks."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=allow_unicode)


class _Dumper(yaml.SafeDumper):
    @override
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)

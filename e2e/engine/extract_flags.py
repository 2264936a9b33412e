"""Extract names, values and choices of all options from the text of `vllm serve --help=all`.

    python e2e/engine/extract_flags.py HELP_TEXT VERSION > e2e/engine/data/vllm_flags_0.33.json

Only names and values are kept, none of the help's prose. For the version that is installed, `engine.arguments.parse`
asks the parser itself.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# "  --name VALUE, -n VALUE   help", or the same with the help on the next line. Deeper lines are help.
_HEADER = re.compile(r"^  (-\S.*?)(?:\s{2,}.*)?$")
# Commas also stand between choices; between spellings a dash follows.
_NEXT_SPELLING = re.compile(r", (?=-)")


def parse_option(header: str) -> dict[str, Any]:
    """One option, from its line of spellings.

    `choices` are the only values it takes; `suggestions` are printed for options that may take others as well.
    """
    option: dict[str, Any] = {
        "spellings": [],
        "short": [],
        "many": False,
        "optional": False,
        "choices": [],
        "suggestions": [],
    }
    for spelling in _NEXT_SPELLING.split(header):
        name, _, value = spelling.partition(" ")
        if name.startswith("--"):
            option["spellings"].append({"name": name, "value": bool(value)})
        else:
            option["short"].append(name)
        option["many"] |= value.endswith("...]")
        if listed := re.search(r"\{(.*?)\}", value):
            option["choices"] = listed[1].split(",")
        elif value.startswith("['"):
            option["suggestions"] = re.findall(r"'(.*?)'", value)
        elif value.startswith("["):
            option["optional"] = True
    return option


def extract(text: str) -> list[dict[str, Any]]:
    """All options of a help text, in its order."""
    headers = (match[1] for line in text.splitlines() if (match := _HEADER.match(line)))
    return [parse_option(header) for header in headers]


def main() -> None:
    source, version = sys.argv[1:]
    options = extract(Path(source).read_text())
    rows = ",\n  ".join(json.dumps(option) for option in options)
    print(f'{{"version": {json.dumps(version)}, "options": [\n  {rows}\n]}}')


if __name__ == "__main__":
    main()

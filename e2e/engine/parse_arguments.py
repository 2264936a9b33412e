"""Run vLLM's own parser of `vllm serve` over many argument lists. Run by `engine.arguments` under the engine's Python.

Standard input: a JSON list of argument lists. The file named on the command line receives a JSON list of objects, in
the same order: `{"values": {...}}` or `{"error": "..."}`.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import vllm
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.entrypoints.launchers.launcher import validate_api_server_args
from vllm.reasoning import ReasoningParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser


def make_parser(command: ServeSubcommand) -> FlexibleArgumentParser:
    """As `vllm`'s main function does it, with the one subcommand."""
    parser = FlexibleArgumentParser(prog="vllm")
    command.subparser_init(parser.add_subparsers(required=True, dest="subparser"))
    return parser


def parse(parser: FlexibleArgumentParser, command: ServeSubcommand, arguments: list[str]) -> dict[str, Any]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            parsed = parser.parse_args(["serve", *arguments])
            given = dict(vars(parsed))
            command.validate(parsed)
            validate_api_server_args(parsed)  # the names of the parsers
            # Turns JSON arguments into configuration objects, which have rules of their own.
            vllm.AsyncEngineArgs.from_cli_args(parsed)
            # The server looks the reasoning parser up only after it has loaded the model.
            if parsed.reasoning_parser:
                ReasoningParserManager.get_reasoning_parser(parsed.reasoning_parser)
    except SystemExit as exit_:
        lines = said.getvalue().splitlines()
        complaint = next((at for at, line in enumerate(lines) if ": error: " in line), None)
        if complaint is None:
            return {"error": f"vllm serve would print its help or version and exit with {exit_.code}"}
        return {"error": "\n".join([lines[complaint].split(": error: ", 1)[1], *lines[complaint + 1 :]])}
    except Exception as error:  # noqa: BLE001 - whatever its rules raise is the answer
        return {"error": f"{type(error).__name__}: {error.args[0] if isinstance(error, KeyError) else error}"}
    return {"values": given}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("output", type=Path)
    output: Path = options.parse_args().output
    command = ServeSubcommand()
    parser = make_parser(command)
    results = [parse(parser, command, arguments) for arguments in json.load(sys.stdin)]
    output.write_text(json.dumps(results, default=str))


if __name__ == "__main__":
    main()

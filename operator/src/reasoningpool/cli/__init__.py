"""The command line: run the operator, print the CRD, render and explain pools without a cluster."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from contextlib import suppress
from typing import Any, Final

import click
from typing_extensions import override

from reasoningpool.cli.output import complain

EXIT_UNWRITABLE: Final = 1
# A closed pipe is click's to handle.
_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# Module and attribute of each command. A command imports only what it needs, and only when it runs.
_COMMANDS: Final = {
    "crd": "reasoningpool.cli.crd:crd",
    "explain": "reasoningpool.cli.explain:explain",
    "plan": "reasoningpool.cli.plan.command:plan",
    "render": "reasoningpool.cli.render:render",
    "run": "reasoningpool.cli.running:run",
}


class _Main(click.Group):
    """Commands are imported when they run; output that cannot be written or shown is no traceback."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    @override
    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            complain("error", f"the output cannot be written: {error.strerror}")
            _drop_output()
            sys.exit(EXIT_UNWRITABLE)


def _drop_output() -> None:
    """What is still buffered goes nowhere, or the interpreter would fail on it again at its end."""
    with suppress(OSError):  # io.UnsupportedOperation too: a stream without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="reasoningpool")
def main() -> None:
    """Serve reasoning models with vLLM on Kubernetes, sized from token budgets."""

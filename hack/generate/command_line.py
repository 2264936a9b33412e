"""docs/reference/cli.md from the command line itself."""

from __future__ import annotations

import inspect

import click

from generate.markdown import code, page, table
from reasoningpool.cli import main

_SOURCE = "operator/src/reasoningpool/cli"
_NAME = "reasoningpool"


def command_line_reference() -> str:
    """Each command with its arguments and options."""
    context = click.Context(main, info_name=_NAME)
    commands = [(name, main.get_command(context, name)) for name in main.list_commands(context)]
    parts = [_command(name, command, context) for name, command in commands if command is not None]
    return page(_SOURCE, "Command line", f"\n{main.help}", *parts)


def _command(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    head = f"\n## {_NAME} {name}\n\n    {usage}\n\n{_text(command)}\n"
    if name == "run":
        return head + "\nIts options are the [settings of the operator](settings.md)."
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = [(code(record[0]), record[1]) for option in options if (record := option.get_help_record(context))]
    return head + (table(("option", "meaning"), rows).rstrip("\n") if rows else "")


def _text(command: click.Command) -> str:
    # \b marks a block that click must not wrap; Markdown has its indentation for that.
    return inspect.cleandoc(command.help or "").replace("\b\n", "")

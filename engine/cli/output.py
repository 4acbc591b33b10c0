"""Output shared by all commands: the form of an app's help, and printing to stdout."""

import inspect
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

UNNAMED = "(unnamed)"
"""The subscription without a name, in tables."""
_NO_LIMIT = 1_000  # characters of a command's first sentence in the list of commands


class CommandGroup(TyperGroup):
    """A group whose help shows each command's whole first sentence, which typer would cut to one line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_NO_LIMIT)) for name, each in commands if each])


def new_app(about: str) -> typer.Typer:
    """Return an app or a group of commands: plain help, no boxes, errors left to evenlane.engine.cli.main.

    `about` ends with examples, like a command's docstring.
    """
    return typer.Typer(
        cls=CommandGroup,
        help=with_examples(about),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def with_examples(about: str | None) -> str:
    """Convert a command's docstring to help. The added mark keeps the examples' lines from being filled like prose."""
    return inspect.cleandoc(about or "").replace("\nExample:\n", "\n\b\nExample:\n")


def print_json(document: object) -> None:
    """Print the only document of a command in JSON mode."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))  # noqa: T201


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns as wide as their widest cell. A pipe gets whole lines, a terminal cut ones."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        text = "  ".join(cells).rstrip()
        print(text if room is None or len(text) <= room else f"{text[: room - 1]}…")  # noqa: T201

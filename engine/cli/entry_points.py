"""Loads commands by name: the engine's own, and those from entry points in the group `evenlane.commands`. The latter
belong to rooms that the engine doesn't know, such as `evenlane.spark`, or to other distributions.

A command is a function with typer annotations, or a `typer.Typer` with commands of its own.
"""

from __future__ import annotations

import os
import sys
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from evenlane.engine.cli.output import CommandGroup, new_app
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GROUP = "evenlane.commands"
_BEFORE = "bench"  # they are listed before this command


class RootGroup(CommandGroup):
    """A group that loads a command when it is called: loading all takes longer than most commands run. Help and an
    unknown name load all commands, including those of entry points.
    """

    own: ClassVar[Mapping[str, str]] = {}
    """The engine's commands: name -> `module:attribute`."""
    _has_all = False

    def list_commands(self, ctx: Any) -> list[str]:
        self.complete()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in self.own:
            return _load(cmd_name, self.own[cmd_name])
        self.complete()
        return super().get_command(ctx, cmd_name)

    def complete(self) -> None:
        """Load all commands, including those of entry points."""
        if self._has_all:
            return
        self._has_all = True
        own = [*self.own.items()]
        place = [*self.own].index(_BEFORE)
        values = {**dict([*own[:place], *found().items(), *own[place:]]), **self.own}  # the engine's own win
        self.commands = {name: _load(name, value) for name, value in values.items()}


def found() -> dict[str, str]:
    """Return the object that an entry point names (`module:attribute`), by command. The first one on the path counts.

    The result is that of `importlib.metadata.entry_points`, whose import alone takes a third of the time of `--help`.
    """
    commands: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        for name, value in _scan_folder(folder or "."):
            commands.setdefault(name, value)
    return commands


def _scan_folder(folder: str) -> Iterator[tuple[str, str]]:
    try:
        distributions = sorted(entry for entry in os.listdir(folder) if entry.endswith(".dist-info"))  # noqa: PTH208
    except OSError:  # the folder doesn't exist, or is an archive
        return
    for distribution in distributions:
        try:
            text = Path(folder, distribution, "entry_points.txt").read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        yield from _parse_section(text)


def _parse_section(text: str) -> Iterator[tuple[str, str]]:
    """Yield the entries of our group, in the format of the entry points specification."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


@cache
def _load(name: str, value: str) -> Any:
    module, _, attribute = value.partition(":")
    try:
        target = reduce(getattr, attribute.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        return _broken(name, f"the command {name} can't be loaded from {value}: {error}")
    return _command(name, target)


def _command(name: str, target: Any, **context: Any) -> Any:
    app = target
    if not isinstance(target, typer.Typer):
        app = new_app("")
        app.command(name, context_settings=context)(target)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _broken(name: str, why: str) -> Any:
    """Return a command that reports why it can't be loaded: a faulty distribution must not break the others."""

    def fail() -> None:
        raise EvenlaneError(why)

    fail.__doc__ = f"Can't be loaded: run `evenlane {name}` to see why."
    return _command(name, fail, ignore_unknown_options=True, allow_extra_args=True)

"""docs/reference/cli.md: every command as `--help` has it, from Typer's own tree of commands."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from markup import code, joined, table

from evenlane.engine.cli.main import root

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMON = ("nats", "etcd", "env", "config", "debug")


def made() -> str:
    return joined(_sections())


def _sections() -> Iterator[str]:
    evenlane = root()
    yield "## Common options"
    yield _options([each for each in evenlane.commands["config"].params if each.name in _COMMON])
    for path, command in _commands(evenlane, ("evenlane",)):
        yield f"{'#' * len(path)} {' '.join(path)}"
        yield from _described(path, command)


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if not command.hidden:
            yield (*path, name), command
            if hasattr(command, "commands"):
                yield from _commands(command, (*path, name))


def _described(path: tuple[str, ...], command: Any) -> Iterator[str]:
    about, _, example = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("Example:\n")
    yield about
    if not hasattr(command, "commands"):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        yield code(" ".join([*path, "[OPTIONS]", *(each.metavar for each in arguments)]), "text")
        if described := [(f"`{each.metavar}`", each.help) for each in arguments if each.help]:
            yield table(("argument", "meaning"), described)
        if own := [each for each in command.params if each not in arguments and each.name not in _COMMON]:
            yield _options(own)
    yield code(inspect.cleandoc(example), "sh")


def _options(options: list[Any]) -> str:
    return table(("option", "meaning"), ((_spelled(each), _meaning(each)) for each in options if not each.hidden))


def _spelled(option: Any) -> str:
    names = ", ".join(option.opts) + (f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else "")
    return f"`{names}`" if option.is_flag else f"`{names} {option.metavar or option.name.upper()}`"


def _meaning(option: Any) -> str:
    shows = option.show_default and not option.is_flag and option.default not in {None, ""}
    return f"{option.help or ''} Default: `{option.default}`." if shows else option.help or ""

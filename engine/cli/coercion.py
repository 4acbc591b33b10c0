"""Converts the values of a command line without pydantic, whose import takes a third of a short command's time.

typer converts each value, even a missing one, by `_runtime_param` of its parameter, which it makes with pydantic when
the parameter is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from evenlane.engine.cli.output import CONTEXT_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable


def click_command(app: typer.Typer) -> Any:
    """Return the command or group that typer makes of an app, which loads pydantic only for the values that need it."""
    command = typer.main.get_command(app)
    _avoid_pydantic(command, typer.Context(command, **CONTEXT_SETTINGS))
    return command


def _avoid_pydantic(command: Any, parent: typer.Context) -> None:
    context = typer.Context(command, parent=parent, **command.context_settings)
    for parameter in command.get_params(context):  # also that of help, whose names the context has
        kind = parameter.type_descriptor
        convert = kind.parameter_info.parser or (str if kind.annotation is str else None)
        parameter._runtime_param = _PlainParam(None if kind.is_list else convert)  # noqa: SLF001
    for each in getattr(command, "commands", {}).values():
        _avoid_pydantic(each, context)


class _PlainParam(NamedTuple):
    """Conversion of one value. `convert` is None for types that are left to typer: paths, ranges, lists."""

    convert: Callable[[Any], object] | None

    def coerce(self, value: Any, param: Any, ctx: typer.Context) -> object:
        if value is None or value == ():
            return value
        if self.convert:
            return self.convert(value)
        param._runtime_param = None  # noqa: SLF001
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

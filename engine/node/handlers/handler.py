"""Describes handlers (async or plain, of one message or of a batch), and loads one by its name."""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Callable

_OURS = str(Path(__file__).parents[3]) + "/"  # the package `evenlane`


@dataclass(frozen=True)
class Handler:
    """A handler. `batch` is the most messages that it takes at once, None if it takes one at a time; `batch_wait` is
    the time (s) for which messages are collected until they are so many. `label` is its name, if not that of `call`.
    """

    call: Callable[[Any], Any]
    is_async: bool
    batch: int | None
    batch_wait: float = 0.0
    label: str = ""

    @property
    def name(self) -> str:
        """MODULE:FUNCTION."""
        return (
            self.label or f"{getattr(self.call, '__module__', None) or type(self.call).__module__}:{name_of(self.call)}"
        )

    def traced(self, trace: Callable[..., Callable[[Any], Any]]) -> Handler:
        """The same handler, in spans: `trace(call, is_async=, batch=)` wraps the call."""
        return replace(self, call=trace(self.call, is_async=self.is_async, batch=self.batch), label=self.name)

    @classmethod
    def of(cls, call: Callable[[Any], Any]) -> Handler:
        """Raises ConfigError for an object that can't be called with one argument."""
        if not callable(call):
            raise ConfigError(f"the handler {call!r} is not a function: it must take a message")
        try:
            inspect.signature(call).bind(object())
        except TypeError as error:
            raise ConfigError(f"the handler {name_of(call)} must take one argument, the message: {error}") from error
        except ValueError:
            pass  # a builtin without a signature: the first call will tell
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise ConfigError(f"the handler {name_of(call)} is a generator, which would never run: it must not yield")
        is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
            getattr(call, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        return cls(call, is_async, getattr(call, "__evenlane_batch__", None))


def name_of(call: Any) -> str:
    return getattr(call, "__qualname__", None) or type(call).__qualname__


def load(spec: str, what: str = "handler") -> Any:
    """Load the handler `module:function`, or the application `module:app`; errors call it `what`.

    The current folder is searched last, so that a user's quota.py can't replace ours. Raises ConfigError, with the
    user's own error in its text.
    """
    module_name, separator, path = spec.partition(":")
    if not separator or not module_name or not path:
        raise ConfigError(
            f"{what} {spec!r} is not of the form MODULE:FUNCTION or MODULE:APP, for example shop.jobs:handle"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"{what} {spec!r}: there is no module {error.name!r} here ({here}) or among the installed packages"
            ) from error
        raise ConfigError(f"{what} {spec!r}: importing {module_name} failed: {_format_error(error)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{what} {spec!r}: importing {module_name} failed: {_format_error(error)}") from error
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{what} {spec!r}: module {module_name} has no {path!r}{_suggest(module, path)}")
        found = getattr(found, part)
    return found


def _format_error(error: BaseException) -> str:
    """The error, and the innermost line outside of this package: where a user can mend it."""
    text = " ".join(str(error).split())
    where, found = "", error.__traceback__
    while found is not None:
        file = found.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, "<")):  # `<frozen importlib._bootstrap>` is of Python's own
            where = f" ({Path(file).name}:{found.tb_lineno})"
        found = found.tb_next
    name = "" if isinstance(error, EvenlaneError) else type(error).__name__
    return f"{name}{': ' if name and text else ''}{text}{where}"


def _suggest(module: Any, name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415

    near = get_close_matches(name, [n for n in vars(module) if not n.startswith("_")], 1)
    return f"; did you mean {near[0]!r}?" if near else ""

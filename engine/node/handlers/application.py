"""What a node runs: the handlers, and a life cycle around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.routes import RouteTable

if TYPE_CHECKING:
    from collections.abc import Callable


class Surroundings(Protocol):
    """What an application gets from the process that runs it."""

    @property
    def start_timeout_s(self) -> float:
        """The longest time until the application has started; 0: no limit."""

    def make_producer(self) -> Any:
        """A `Producer` that isn't open yet."""

    def on_end(self, reason: str) -> None:
        """The application has ended by itself."""


class Application(Protocol):
    """Handlers and a life cycle: `begin` before the first message, `end` after the last one."""

    @property
    def subscription(self) -> str | None:
        """The subscription that it handles messages for; None: that of the settings."""

    @property
    def routes(self) -> RouteTable: ...

    @property
    def fallback(self) -> Handler | None: ...

    async def begin(self, surroundings: Surroundings) -> None:
        """Raises EvenlaneError."""

    async def end(self, timeout_s: float) -> None:
        """No effect if it hasn't begun. Raises EvenlaneError."""


@runtime_checkable
class ApplicationFactory(Protocol):
    """An object that users write, such as `evenlane.Evenlane`."""

    def __evenlane_application__(self) -> Application:
        """Raises ConfigError."""


class FunctionApplication:
    """One handler for all messages, and nothing around it."""

    subscription: str | None = None

    def __init__(self, handler: Callable[[Any], Any], fallback: Callable[[Any], Any] | None = None) -> None:
        self.routes = RouteTable.of(handler)
        self.fallback = None if fallback is None else Handler.of(fallback)

    async def begin(self, _surroundings: Surroundings) -> None:
        """Nothing to begin."""

    async def end(self, _timeout_s: float) -> None:
        """Nothing to end."""


def application_of(given: Any, fallback: Callable[[Any], Any] | None = None) -> Application:
    """The application of an object that a user has given: a function or an `Evenlane`. Raises ConfigError."""
    if not callable(given) and not isinstance(given, ApplicationFactory):
        raise ConfigError(f"{given!r} is neither an application nor a handler, a function that takes a message")
    if not isinstance(given, ApplicationFactory) or isinstance(given, type):
        return FunctionApplication(given, fallback)
    if fallback is not None:
        raise ConfigError("an application has a fallback of its own: use @app.fallback in place of another one")
    return given.__evenlane_application__()

"""`Evenlane`: an application."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from evenlane.engine.app.app_producer import AppProducer, AppSyncProducer
from evenlane.engine.app.handler_call import build_handler, check_handler
from evenlane.engine.app.lifespan import LifespanTask, as_lifespan
from evenlane.engine.app.middleware import check_middleware
from evenlane.engine.app.scope import Scope
from evenlane.engine.base.names import check_subscription
from evenlane.engine.base.project_patterns import ALL
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler, name_of
from evenlane.engine.node.handlers.routes import KIND_HEADER, Route, RouteTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.app.app_producer import LazyProducer
    from evenlane.engine.app.lifespan import Lifespan
    from evenlane.engine.node.handlers.application import Surroundings

F = TypeVar("F", bound="Callable[..., Any]")
M = TypeVar("M", bound="Callable[[Any, Any], Any]")

_LONGEST_WAIT_S = 60.0


class Evenlane:
    """An application: handlers, and what they share. `evenlane run shop:app` runs it, and so do `app.run()` and
    `Engine(app)`.

        app = Evenlane()

        @app.handler("orders-*")
        async def bill(message: Message[Order]) -> None: ...

    `lifespan(app)` is an async context manager that is entered before the first message and left after the last one;
    what it yields is `message.state`. `middleware` are functions around the handlers, the first one outermost.
    `kind_header` is the header that says of which kind a message is. `subscription` is the one that the application
    handles messages for, as with `evenlane run --subscription`; by default that of the settings. Raises ConfigError,
    InvalidName.
    """

    def __init__(
        self,
        *,
        lifespan: Callable[[Any], Any] | None = None,
        middleware: Sequence[Callable[[Any, Any], Any]] = (),
        kind_header: str = KIND_HEADER,
        subscription: str | None = None,
    ) -> None:
        h.check_user({kind_header: ""})
        self._subscription = None if subscription is None else check_subscription(subscription)
        self._lifespan = None if lifespan is None else as_lifespan(lifespan)
        self._kind_header = kind_header
        self._middleware: list[Callable[[Any, Any], Any]] = []
        self._routes: list[Route] = []
        self._fallback: Handler | None = None
        self.producer = AppProducer()
        """Puts further messages from async handlers, while the application runs; as `Producer`."""
        self.sync_producer = AppSyncProducer(self.producer)
        """The same for plain handlers: `app.sync_producer.put(...)` returns when the message is stored."""
        if not isinstance(middleware, list | tuple):
            kind = type(middleware).__name__
            raise ConfigError(f"middleware must be a list of functions, and this is of type {kind}")
        for each in middleware:
            self.middleware(each)

    @overload
    def handler(self, project: F, /) -> F: ...

    @overload
    def handler(
        self, *projects: str, kind: str | None = None, batch: int | None = None, wait: float = 0.0
    ) -> Callable[[F], F]: ...

    def handler(self, *projects: Any, kind: str | None = None, batch: int | None = None, wait: float = 0.0) -> Any:
        """Decorate the handler of these projects, or of all without any: a name, or a pattern in which `*` stands for
        any characters. An exact name goes before the longest literal prefix.

        `kind`: only messages whose kind header has this value; they go before a handler that names no kind. `batch`:
        the handler takes a list of up to so many messages of one queue, collected for up to `wait` seconds. A plain
        function runs in a thread. Raises ConfigError.
        """
        if len(projects) == 1 and not isinstance(projects[0], str) and callable(projects[0]):
            return self.handler()(projects[0])
        for project in projects:
            if not isinstance(project, str):
                raise ConfigError(f"a handler's project {project!r} is not text: give a name or a pattern")
        if kind is not None and (not isinstance(kind, str) or not kind.strip() or kind != kind.strip()):
            raise ConfigError(f"a handler's kind {kind!r} is not valid: it must be text without outer spaces")

        def register(function: F) -> F:
            handler = _batched(Handler.of(function), batch, wait)
            check_handler(handler)
            routes = [*self._routes, *(Route(pattern, handler, kind) for pattern in projects or (ALL,))]
            RouteTable(routes, self._kind_header)  # reports conflicts where they are made
            self._routes = routes
            return function

        return register

    def middleware(self, function: M) -> M:
        """Add a function around all handlers, inside those added before: `function(message, call_next)`; a batch is
        given as a list. Works as a decorator. Raises ConfigError.
        """
        check_middleware(function)
        self._middleware.append(function)
        return function

    def fallback(self, function: F) -> F:
        """Decorate the handler of messages that would otherwise become dead letters. Raises ConfigError."""
        if self._fallback is not None:
            raise ConfigError(
                f"an application has one fallback, and {name_of(self._fallback.call)} is it already:"
                f" {name_of(function)} can't be another"
            )
        handler = Handler.of(function)
        check_handler(handler)
        self._fallback = handler
        return function

    def run(self, **settings: Any) -> NoReturn:
        """Run a node with this application until SIGTERM or SIGINT, as `evenlane run` does: `app.run(concurrency=100)`.
        Arguments left out come from the settings.

        It sets up logs, prints a line when the node is ready, and exits the process: with 0 after a clean drain, 1
        after a failure, 2 for wrong use. An error is one sentence on stderr.
        """
        from evenlane.engine.app.runner import run_application  # noqa: PLC0415 - a node's parts, which tests don't need

        run_application(self, settings)

    def __evenlane_application__(self) -> RunningApplication:
        if not self._routes:
            raise ConfigError("the application has no handlers: decorate a function with @app.handler")
        return RunningApplication(
            self, self._routes, self._kind_header, self._fallback, self._middleware, self._lifespan, self._subscription
        )


class RunningApplication:
    """One run of an application, by a node."""

    def __init__(
        self,
        app: Evenlane,
        routes: Sequence[Route],
        kind_header: str,
        fallback: Handler | None,
        middleware: Sequence[Callable[[Any, Any], Any]],
        lifespan: Lifespan | None,
        subscription: str | None,
    ) -> None:
        self._app, self._lifespan, self.subscription = app, lifespan, subscription
        self._scope = Scope()
        self._running: LifespanTask | None = None
        self._producer: LazyProducer | None = None

        def build(handler: Handler) -> Handler:
            return build_handler(handler, middleware, self._scope, has_state=lifespan is not None)

        self.routes = RouteTable([replace(route, handler=build(route.handler)) for route in routes], kind_header)
        self.fallback = None if fallback is None else build(fallback)

    async def begin(self, surroundings: Surroundings) -> None:
        """Begin the lifespan. Raises EvenlaneError if it fails, or takes too long."""
        self._scope.open()
        self._producer = self._app.producer.begin(surroundings.make_producer)
        if self._lifespan is not None:
            running = LifespanTask(self._lifespan, self._app, surroundings.on_end)
            await running.begin(surroundings.start_timeout_s)
            self._running, self._scope.state = running, running.state

    async def end(self, timeout_s: float) -> None:
        """End the lifespan. Raises EvenlaneError if it fails, or takes longer than `timeout_s`."""
        try:
            if self._running is not None:
                await self._running.end(timeout_s)
        finally:
            self._running = None
            if self._producer is not None:
                await self._app.producer.end(self._producer)
            self._scope.close()


def _batched(handler: Handler, batch: int | None, wait: float) -> Handler:
    """The handler with these limits, or with those of `@batch`. Raises ConfigError."""
    name = name_of(handler.call)
    if batch is not None and (isinstance(batch, bool) or not isinstance(batch, int) or batch < 1):
        raise ConfigError(f"the handler {name} has batch={batch!r}: it must be a whole number from 1")
    is_number = isinstance(wait, int | float) and not isinstance(wait, bool)
    if not is_number or not isfinite(wait) or not 0 <= wait <= _LONGEST_WAIT_S:
        raise ConfigError(f"the handler {name} has wait={wait!r}: it must be seconds from 0 to {_LONGEST_WAIT_S:g}")
    most = handler.batch if batch is None else batch
    if wait and most is None:
        raise ConfigError(f"the handler {name} waits, but takes one message at a time: say batch=100, for example")
    return replace(handler, batch=most, batch_wait=float(wait))

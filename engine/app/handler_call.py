"""Builds the call of a handler: its body is decoded, its middleware run, and the application's state passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.app.middleware import Layer, surround
from evenlane.engine.app.signature import read_annotation
from evenlane.engine.app.typed_body import BodyReader
from evenlane.engine.core.message.decoding_handler import DecodingHandler
from evenlane.engine.core.message.handler_exceptions import Reject
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.app.scope import Scope
    from evenlane.engine.core.message.message import Message


def check_handler(handler: Handler) -> None:
    """Raises ConfigError if the annotation of the handler's message doesn't fit."""
    annotation = read_annotation(handler.call)
    name = name_of(handler.call)
    if handler.batch and annotation.is_list is False:
        raise ConfigError(f"the handler {name} takes batches: annotate a list of messages, such as list[Message]")
    if not handler.batch and annotation.is_list:
        raise ConfigError(f"the handler {name} takes a list: say how many messages at most, for example batch=100")
    if annotation.body is not None:
        BodyReader(annotation.body)


def build_handler(
    handler: Handler, middleware: Sequence[Callable[[Any, Any], Any]], scope: Scope, *, has_state: bool
) -> Handler:
    """Return the handler with everything around it. A handler with nothing around it is returned as it is, so that it
    costs no more than without an application.
    """
    body = read_annotation(handler.call).body
    reader = None if body is None else BodyReader(body)
    if reader is None and not middleware and not has_state:
        return handler
    layer = Layer(handler.call, handler.is_async)
    if middleware:
        layer = surround(middleware, layer, scope.get_loop)
    prepare = _prepare_batch if handler.batch else _prepare_one
    call = prepare(layer, reader, scope, has_state=has_state)
    return Handler(call, layer.is_async, handler.batch, handler.batch_wait, handler.name)


def _prepare_one(layer: Layer, reader: BodyReader | None, scope: Scope, *, has_state: bool) -> Callable[[Message], Any]:
    inner = layer.call
    call: Callable[[Message], Any] = (
        inner if reader is None else DecodingHandler(inner, reader.decode, reader.read).handle
    )
    if not has_state:
        return call

    def call_with_state(message: Message) -> Any:
        message.app_state = scope.state
        return call(message)

    return call_with_state


def _prepare_batch(
    layer: Layer, reader: BodyReader | None, scope: Scope, *, has_state: bool
) -> Callable[[list[Message]], Any]:
    """The handler gets the messages whose body fits; the others fail alone."""
    inner, is_async = layer

    def call(messages: list[Message]) -> Any:
        fitting = messages
        if has_state:
            for message in messages:
                message.app_state = scope.state
        if reader is not None:
            fitting = [message for message in messages if _fits(message, reader)]
        if fitting:
            return inner(fitting)
        return _nothing() if is_async else None

    return call


def _fits(message: Message, reader: BodyReader) -> bool:
    try:
        message.decoded = reader.read(message)
    except Reject as error:
        message.fail(error)
        return False
    return True


async def _nothing() -> None:
    """No message of a batch is left."""

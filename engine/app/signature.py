"""Reads the annotation of a handler's message: the type of its body, and whether it takes a list."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

from evenlane.engine.core.message.message import Message
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import name_of

if TYPE_CHECKING:
    from collections.abc import Callable


class MessageAnnotation(NamedTuple):
    """`body` is the type in `Message[...]`, None if there is none. `is_list`: the handler takes a list of messages;
    None if it doesn't say.
    """

    body: Any = None
    is_list: bool | None = None


def read_annotation(call: Callable[..., Any]) -> MessageAnnotation:
    """Read the annotation of the first parameter. Raises ConfigError if it names something that can't be found, or is
    neither a message nor a list of messages.
    """
    target = call
    while isinstance(target, partial):
        target = target.func
    function = target if inspect.isroutine(target) else type(target).__call__
    try:
        own = list(inspect.signature(call).parameters)
    except ValueError:  # a builtin without a signature
        return MessageAnnotation()
    if not own or (text := getattr(function, "__annotations__", {}).get(own[0])) is None:
        return MessageAnnotation()
    try:
        found = get_type_hints(function, include_extras=True)[own[0]]
    except Exception as error:
        raise ConfigError(
            f"the handler {name_of(call)} takes {_shown(text)}, and this can't be evaluated: {error}; import its names"
            " where the handler is defined, outside of `if TYPE_CHECKING`"
        ) from error
    return _of(found, call)


def _of(found: Any, call: Callable[..., Any]) -> MessageAnnotation:
    if found is Any or found is object:
        return MessageAnnotation()
    if found is list or get_origin(found) in _LISTS:
        args = get_args(found)
        return MessageAnnotation(_of_one(args[0], call) if args else None, True)
    return MessageAnnotation(_of_one(found, call), False)


def _of_one(found: Any, call: Callable[..., Any]) -> Any:
    if found is Message or found is Any:
        return None
    if get_origin(found) is Message:
        [body] = get_args(found)
        return None if body is Any or body is bytes else body
    raise ConfigError(
        f"the handler {name_of(call)} takes {_shown(found)}: it must take a Message, a Message[TYPE], or a list of them"
    )


def _shown(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace(f"{Message.__module__}.", "")


def _lists() -> frozenset[Any]:
    from collections import abc  # noqa: PLC0415 - only for this line

    return frozenset({list, abc.Sequence, abc.Iterable, abc.Collection})


_LISTS = _lists()

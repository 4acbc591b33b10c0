"""docs/reference/python-api.md: the public names of `evenlane` and of its test kit, with signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from markup import code, joined, table

import evenlane
from evenlane import testing
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The members of each class that users may rely on, in the order of the page. All names of `evenlane` but its errors.
_MEMBERS: dict[str, tuple[str, ...]] = {
    "Evenlane": ("handler", "fallback", "middleware", "run"),
    "Producer": ("open", "close", "put", "put_many", "put_each", "home_partition"),
    "SyncProducer": ("open", "close", "put", "put_many", "put_each", "home_partition"),
    "Put": (),
    "Receipt": (),
    "Topics": ("open", "close", "get", "list", "set", "pause", "resume", "drain", "delete", "apply"),
    "SyncTopics": ("get", "list", "set", "pause", "resume", "drain", "delete", "apply"),
    "TopicFields": (),
    "TopicStatus": ("qps", "state", "is_accepted", "reason", "document"),
    "AppliedTopics": (),
    "DeadLetters": (),
    "Message": (
        "data", "state", "id", "project", "group", "priority", "key", "headers", "attempt", "put_at", "put_ns",
        "due_at", "stream", "sequence", "partition", "epoch", "reason", "error", "in_progress", "fail",
    ),
    "Retry": (),
    "Reject": (),
    "Pause": (),
    "batch": (),
    "Engine": ("run", "stop"),
    "PlacementRequest": (),
    "PlacementNode": (),
    "Settings": ("node_id", "shown"),
    "add_message_fields": (),
    "MessageFilter": ("filter",),
}  # fmt: skip
# The same for `evenlane.testing`.
_TESTING: dict[str, tuple[str, ...]] = {
    "TestApp": (
        "put",
        "run_until_idle",
        "advance",
        "now",
        "handled",
        "failed",
        "dead_letters",
        "backlog",
        "why",
        "replay",
    ),
    "message": (),
    "FailedAttempt": (),
    "PlacementContract": ("requests",),
    "Stuck": (),
}
_WITHOUT_CONSTRUCTOR = {
    "Message": "",
    "Settings": "Its fields are the [settings](settings.md).",
    "Stuck": "",
    "TopicFields": "They are described in [Topics](topics.md#fields).",
    "TopicStatus": "",
}
_WIDTH = 100


def made() -> str:
    return joined(_sections())


def _sections() -> Iterator[str]:
    errors = {name for name in evenlane.__all__ if _is_error(getattr(evenlane, name))}
    if differ := set(evenlane.__all__) ^ (set(_MEMBERS) | errors):
        raise SystemExit(f"api_part.py and evenlane.__all__ differ in {differ}")
    for name, members in _MEMBERS.items():
        yield f"## {name}"
        yield from _described(name, getattr(evenlane, name), members)
    yield from _testing()
    yield "## Errors"
    yield f"{', '.join(f'`{name}`' for name in sorted(errors))}: see [errors](errors.md)."


def _testing() -> Iterator[str]:
    if differ := set(testing.__all__) ^ set(_TESTING):
        raise SystemExit(f"api_part.py and evenlane.testing.__all__ differ in {differ}")
    for name, members in _TESTING.items():
        yield f"## testing.{name}"
        yield from _described(name, getattr(testing, name), members)


def _is_error(each: Any) -> bool:
    return inspect.isclass(each) and issubclass(each, EvenlaneError)


def _described(name: str, each: Any, members: tuple[str, ...]) -> Iterator[str]:
    yield _text(each)
    yield _WITHOUT_CONSTRUCTOR[name] if name in _WITHOUT_CONSTRUCTOR else _signature(name, each)
    found = {member: vars(each)[member] for member in members}
    properties = {member: one for member, one in found.items() if isinstance(one, property)}
    if properties:
        yield table(("attribute", "type", "meaning"), (_row(member, one) for member, one in properties.items()))
    for member in [each for each in found if each not in properties]:
        yield f"### {name}.{member}"
        yield _signature(member, found[member])
        yield _text(found[member])


def _row(name: str, attribute: property) -> tuple[str, str, str]:
    return f"`{name}`", f"`{_annotation(inspect.signature(attribute.fget).return_annotation)}`", _text(attribute)


def _text(each: Any) -> str:
    return inspect.cleandoc(each.__doc__ or "")


def _signature(name: str, each: Any) -> str:
    """On one line if it fits, else an argument a line."""
    parameters = [one for one in _parameters(each) if one.name not in {"self", "_cls"}]
    arguments = [_argument(one) for one in parameters]
    keyword_only = [one.kind is Parameter.KEYWORD_ONLY for one in parameters]
    if True in keyword_only and all(one.kind is not Parameter.VAR_POSITIONAL for one in parameters):
        arguments.insert(keyword_only.index(True), "*")
    begin = "async def " if inspect.iscoroutinefunction(each) else "" if inspect.isclass(each) else "def "
    result = "" if inspect.isclass(each) else f" -> {_annotation(inspect.signature(each).return_annotation)}"
    line = f"{begin}{name}({', '.join(arguments)}){result}"
    if len(line) > _WIDTH:
        line = f"{begin}{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){result}"
    return code(line, "python")


def _parameters(each: Any) -> list[Parameter]:
    if not hasattr(each, "__struct_fields__"):
        return list(inspect.signature(each).parameters.values())
    names, known = each.__struct_fields__, each.__struct_defaults__  # of msgspec
    defaults = (Parameter.empty,) * (len(names) - len(known)) + known
    return [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=each.__annotations__[name])
        for name, default in zip(names, defaults, strict=True)
    ]


def _argument(one: Parameter) -> str:
    name = {Parameter.VAR_KEYWORD: "**", Parameter.VAR_POSITIONAL: "*"}.get(one.kind, "") + one.name
    annotated = name if one.annotation is Parameter.empty else f"{name}: {_annotation(one.annotation)}"
    return annotated if one.default is Parameter.empty else f"{annotated} = {one.default!r}"


def _annotation(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", text)
    return re.sub(r"\b(?:evenlane|collections|typing|datetime)(?:\.\w+)*\.(\w+)", r"\1", text)

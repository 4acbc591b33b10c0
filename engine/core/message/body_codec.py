"""Encodes and decodes typed bodies: JSON, or msgpack if the content type says so. Pure.

msgspec does the work, also for dataclasses, attrs classes and TypedDicts. A pydantic model or dataclass validates
itself, and is encoded by its aliases, since it is decoded by them; pydantic is never imported here, as a class shows by
its attributes that it is one. This module stays interpreted, since mypyc's checks would only slow down what msgspec
does.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, get_origin, is_typeddict

import msgspec

from evenlane.engine.errors import ConfigError, InvalidPut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONTENT_TYPE = "Content-Type"
JSON = "application/json"
_FORM = {False: "JSON", True: "msgpack"}
_WRONG = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_CANT = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class BodyError(ValueError):
    """The body isn't of the type; the text names the type and the field."""


def is_msgpack(headers: Mapping[str, str]) -> bool:
    """Whether the content type says so: `application/msgpack`, `application/x-msgpack` or the like."""
    return "msgpack" in _content_type(headers).lower()


def encode(body: Any, headers: Mapping[str, str] | None) -> tuple[bytes, Mapping[str, str] | None]:
    """The bytes of a body, and its headers: for an object with a content type, JSON unless one is given.

    A body is bytes, or a msgspec Struct, a pydantic model, an attrs or data class, a dict or a list. Raises TypeError
    for any other object, InvalidPut if something in it can't be encoded.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), headers
    if not _is_typed(body):
        what = "text: encode it, for example with body.encode()" if isinstance(body, str) else _kind(body)
        raise TypeError(f"the body of a message must be bytes, and this one is {what}")
    given = headers or {}
    packed = is_msgpack(given)
    try:
        raw = _encode(body, packed=packed)
    except _CANT as error:
        kind = type(body).__name__
        raise InvalidPut(f"a body of type {kind} can't be encoded as {_FORM[packed]}: {error}") from error
    return raw, given if _content_type(given) else {**given, CONTENT_TYPE: JSON}


def decoder_for(body: Any, *, msgpack: bool = False) -> Callable[[bytes], Any]:
    """A function that decodes bytes as this type: a msgspec Struct, a pydantic model, an attrs or data class, a
    TypedDict, or any other type that msgspec knows. It raises BodyError. Raises ConfigError for another type.
    """
    name, decode = _name_of(body), bare_decoder_for(body, msgpack=msgpack)

    def read(raw: bytes) -> Any:
        try:
            return decode(raw)
        except _WRONG as error:
            raise BodyError(f"the body isn't a valid {name}: {error}") from error
        except ValueError as error:  # of pydantic
            raise BodyError(f"the body isn't a valid {name}: {_first_of(error)}") from error

    return read


def bare_decoder_for(body: Any, *, msgpack: bool = False) -> Callable[[bytes], Any]:
    """The decoder itself, which raises errors of its own. Raises ConfigError for a type that it doesn't know."""
    if _is_model_class(body):
        return _of_model(body, packed=msgpack)
    try:
        _check_known(body)
        if msgpack:
            return msgspec.msgpack.Decoder(body, dec_hook=_to_model).decode
        return msgspec.json.Decoder(body, dec_hook=_to_model).decode
    except (TypeError, NameError) as error:
        raise ConfigError(f"a body can't be decoded as {_name_of(body)}: {error}") from error


def _check_known(body: Any) -> None:
    """Raise TypeError for a type that msgspec would leave to `_to_model`, unless it is a model."""
    unknown = _find_unknown(msgspec.inspect.type_info(body), set())
    if unknown is not None:
        raise TypeError(f"objects of type {unknown.__name__} are not supported")


def _find_unknown(info: Any, seen: set[int]) -> type | None:
    """The first type within a type that msgspec leaves to `_to_model`, and that isn't a model."""
    if isinstance(info, list | tuple):
        return next((found for each in info if (found := _find_unknown(each, seen)) is not None), None)
    if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) or id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if _is_model_class(info.cls) else info.cls
    return _find_unknown([getattr(info, name) for name in info.__struct_fields__], seen)


def has_fields(body: Any) -> bool:
    """Whether a body of this type is an object: nothing that is one in JSON is one in msgpack as well."""
    if not isinstance(body, type):
        return get_origin(body) is dict
    is_class = issubclass(body, msgspec.Struct | dict) or is_typeddict(body) or dataclasses.is_dataclass(body)
    return is_class or hasattr(body, "__attrs_attrs__") or _is_model_class(body)


def _name_of(body: Any) -> str:
    return getattr(body, "__name__", "") or inspect.formatannotation(body)


def _content_type(headers: Mapping[str, str]) -> str:
    texts = ((name, value) for name, value in headers.items() if isinstance(name, str) and isinstance(value, str))
    return next((value for name, value in texts if name.lower() == "content-type"), "")


def _is_typed(body: Any) -> bool:
    if isinstance(body, type):
        return False
    is_class = isinstance(body, msgspec.Struct | dict | list) or dataclasses.is_dataclass(body)
    return is_class or hasattr(body, "__attrs_attrs__") or _is_model(body)


def _kind(body: object) -> str:
    return f"of type {type(body).__name__}" if not isinstance(body, type) else f"the class {body.__name__} itself"


# ---- pydantic


_VALIDATOR, _SERIALIZER = "__pydantic_validator__", "__pydantic_serializer__"


def _is_model_class(body: Any) -> bool:
    return isinstance(body, type) and hasattr(body, _VALIDATOR)


def _is_model(value: Any) -> bool:
    return hasattr(value, _SERIALIZER)


def _encode(body: Any, *, packed: bool) -> bytes:
    if _is_model(body):
        if packed:
            return msgspec.msgpack.encode(_from_model(body))
        raw: bytes = getattr(body, _SERIALIZER).to_json(body, by_alias=True)
        return raw
    if packed:
        return msgspec.msgpack.encode(body, enc_hook=_from_model)
    return msgspec.json.encode(body, enc_hook=_from_model)


def _from_model(value: Any) -> Any:
    """Builtin objects in place of a model, which may be within another object."""
    if _is_model(value):
        return getattr(value, _SERIALIZER).to_python(value, mode="json", by_alias=True)
    raise TypeError(f"an object of type {type(value).__name__} is in it")


def _to_model(kind: type, value: Any) -> Any:
    """A model within another object. Raises ValueError, to which msgspec adds the path."""
    if not _is_model_class(kind):
        raise NotImplementedError(f"objects of type {kind.__name__} are not supported")
    try:
        return getattr(kind, _VALIDATOR).validate_python(value)
    except ValueError as error:
        raise ValueError(_first_of(error)) from error


def _of_model(model: Any, *, packed: bool) -> Callable[[bytes], Any]:
    validator = getattr(model, _VALIDATOR)
    if not packed:
        decode: Callable[[bytes], Any] = validator.validate_json
        return decode
    return lambda raw: validator.validate_python(msgspec.msgpack.decode(raw))


def _first_of(error: Any) -> str:
    """The first of a validation error's reasons, with its field; the others are counted."""
    try:
        found = error.errors(include_url=False, include_context=False, include_input=False)
    except (AttributeError, TypeError):
        return str(error)
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found[0]["loc"])
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{found[0]['msg']} - at `${where}`{more}"

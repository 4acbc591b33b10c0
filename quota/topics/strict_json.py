"""Reads JSON that people and programs write into etcd, strictly.

Python's reader accepts much that isn't sound: the last of two fields of one name, NaN, UTF-16, numbers that become
infinite. For any input, this module returns an object or raises one `TopicError`.
"""

import codecs
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

BOM = "begins with a byte order mark (BOM): save it as UTF-8 without one"


class TopicError(ValueError):
    """A topic is invalid. `field` is its field ("" for the whole), `reason` the rest of the sentence."""

    def __init__(self, field: str, reason: str) -> None:
        # The name may come from anyone: no line break or lone surrogate may reach a log or a terminal.
        self.field = (field if field.isprintable() and field.isascii() else json.dumps(field))[:64]
        self.reason = reason
        super().__init__(f"{self.field or 'it'} {reason}")


class HugeNumber(float):
    """A number too large for a float: it compares as infinite, and is shown as written."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def real(text: str) -> float:
    """A number; `HugeNumber` if it is too large for a float. Raises ValueError."""
    value = float(text)
    return HugeNumber(text) if math.isinf(value) and any(map(str.isdigit, text)) else value


def has_bom(raw: bytes) -> bool:
    """Whether it begins with the mark that some editors put before UTF-8."""
    return raw.startswith(codecs.BOM_UTF8)


def read_object(raw: bytes, most_bytes: int, *, example: str = '{"qps": 100}') -> dict[str, Any]:
    """The JSON object in `raw`. Infinite numbers and NaN are left in, to be named by the field's rule. `example` is
    shown in the error if it is something else.

    Raises TopicError.
    """
    if len(raw) > most_bytes:
        raise TopicError("", f"is {len(raw):,} bytes long: at most {most_bytes:,} are allowed")
    if has_bom(raw):
        raise TopicError("", f"is not JSON: it {BOM}")
    try:
        read = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_refuse_duplicates,
            parse_float=real,
            parse_int=_integer,
            parse_constant=float,
        )
    except UnicodeDecodeError:
        raise TopicError("", "is not JSON: it isn't UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise TopicError("", f"is not JSON: {error}") from None
    except RecursionError:
        raise TopicError("", "is nested too deeply") from None
    if not isinstance(read, dict):
        raise TopicError("", f"must be a JSON object such as {example}, not {format_value(read)}")
    return read


def write_object(fields: Mapping[str, object]) -> bytes:
    """Compact JSON, in the given order. Raises ValueError for NaN and infinity."""
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode()


def format_value(value: object) -> str:
    """A value for an error text: as in JSON, shortened."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    if isinstance(value, float) and math.isinf(value) and not isinstance(value, HugeNumber):
        return "an infinite number"
    try:
        text = value.text if isinstance(value, HugeNumber) else json.dumps(value)
    except (TypeError, ValueError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 40 else text[:37] + "..."


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TopicError(twice, "is given twice")
    return made


def _integer(text: str) -> int | float:
    """No field takes 19 digits, and parsing thousands of them would take quadratic time."""
    return int(text) if len(text) < 19 else real(text)

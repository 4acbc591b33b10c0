"""Typed bodies: what is encoded is decoded again, and what doesn't fit is named."""

from __future__ import annotations

import datetime as dt  # noqa: TC003 - msgspec evaluates annotations
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.message.body_codec import BodyError, decoder_for, encode, is_msgpack
from evenlane.engine.errors import ConfigError, InvalidPut


class Line(msgspec.Struct):
    name: str
    count: int


class Order(msgspec.Struct):
    id: int
    lines: list[Line]
    at: dt.datetime | None = None


@dataclass
class Item:
    id: int
    text: str


class Entry(TypedDict):
    id: int
    texts: list[str]


class Model(pydantic.BaseModel):
    id: int
    texts: list[str]


class Renamed(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


@pydantic.dataclasses.dataclass
class Bounded:
    count: int = pydantic.Field(gt=5)


class Parcel(msgspec.Struct):
    model: Model


numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=20)
bodies = st.one_of(
    st.tuples(st.just(Order), st.builds(Order, numbers, st.lists(st.builds(Line, texts, numbers), max_size=3))),
    st.tuples(st.just(Item), st.builds(Item, numbers, texts)),
    st.tuples(st.just(Entry), st.fixed_dictionaries({"id": numbers, "texts": st.lists(texts, max_size=3)})),
    st.tuples(st.just(Model), st.builds(Model, id=numbers, texts=st.lists(texts, max_size=3))),
    st.tuples(st.just(Renamed), st.builds(Renamed, orderId=numbers)),
    st.tuples(st.just(list[Renamed]), st.lists(st.builds(Renamed, orderId=numbers), max_size=2)),
    st.tuples(st.just(Bounded), st.builds(Bounded, st.integers(6, 2**63 - 1))),
    st.tuples(st.just(Parcel), st.builds(Parcel, st.builds(Model, id=numbers, texts=st.lists(texts, max_size=3)))),
    st.tuples(st.just(list[Model]), st.lists(st.builds(Model, id=numbers, texts=st.lists(texts)), max_size=2)),
)
JSON = {"Content-Type": "application/json"}
MSGPACK = {"content-type": "application/x-msgpack"}


@given(bodies, st.sampled_from([None, {}, JSON, MSGPACK, {"CONTENT-TYPE": "application/vnd.msgpack", "a": "b"}]))
def test_body_is_decoded_as_it_was_encoded(typed, headers):
    kind, body = typed
    raw, given_headers = encode(body, headers)
    assert isinstance(raw, bytes)
    assert body == decoder_for(kind, msgpack=is_msgpack(given_headers))(raw)


def test_object_without_a_content_type_is_json_and_says_so():
    raw, headers = encode(Item(1, "a"), {"a": "b"})
    assert b'{"id":1,"text":"a"}' == raw
    assert {"a": "b", "Content-Type": "application/json"} == headers


def test_bytes_stay_as_they_are():
    for body in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        assert (b"abc", None) == encode(body, None)
    assert (b"abc", MSGPACK) == encode(b"abc", MSGPACK)


@pytest.mark.parametrize(
    ("body", "what"),
    [("text", r"text: encode it, for example with body.encode\(\)"), (5, "of type int"), (None, "of type NoneType"),
     (Order, "the class Order itself"), (object(), "of type object")],
)  # fmt: skip
def test_body_that_is_neither_bytes_nor_an_object_with_fields(body, what):
    with pytest.raises(TypeError, match=f"the body of a message must be bytes, and this one is {what}"):
        encode(body, None)


@pytest.mark.parametrize("headers", [JSON, MSGPACK])
@pytest.mark.parametrize("value", [object(), {1: object()}])
def test_object_that_can_not_be_encoded(headers, value):
    with pytest.raises(InvalidPut, match=r"a body of type dict can't be encoded as (JSON|msgpack): .*object"):
        encode({"a": value}, headers)


@pytest.mark.parametrize(
    ("kind", "raw", "sentence"),
    [
        (Order, b'{"id": "x", "lines": []}', "the body isn't a valid Order: Expected `int`, got `str` - at `$.id`"),
        (Order, b"{}", "the body isn't a valid Order: Object missing required field `id`"),
        (Order, b"{", "the body isn't a valid Order: Input data was truncated"),
        (Order, b"\xff", "the body isn't a valid Order: JSON is malformed"),
        (Model, b'{"id": "x", "texts": [1]}', "the body isn't a valid Model: Input should be a valid integer, unable"),
        (Model, b"{", "the body isn't a valid Model: Invalid JSON: EOF while parsing an object"),
        (Parcel, b'{"model": {}}', "the body isn't a valid Parcel: Field required - at `$.id` (and 1 more)"),
        (list[int], b'["a"]', "the body isn't a valid list: Expected `int`, got `str` - at `$[0]`"),
    ],
)  # fmt: skip
def test_body_that_does_not_fit_names_the_type_and_the_field(kind, raw, sentence):
    with pytest.raises(BodyError) as raised:
        decoder_for(kind)(raw)
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)


def test_field_of_a_model_is_named():
    with pytest.raises(BodyError, match=r"- at `\$\.id` \(and 1 more\)$"):
        decoder_for(Model)(b'{"id": "x", "texts": [1]}')
    with pytest.raises(BodyError, match=r"- at `\$\.texts\[0\]` - at `\$\.model`$"):
        decoder_for(Parcel)(b'{"model": {"id": 1, "texts": [2]}}')


@pytest.mark.parametrize("kind", [Order, Model])
@given(raw=st.binary(max_size=40), msgpack=st.booleans())
def test_no_bytes_raise_anything_else(kind, raw, msgpack):
    try:
        decoder_for(kind, msgpack=msgpack)(raw)
    except BodyError as error:
        assert str(error).startswith("the body isn't a valid")  # noqa: PT017


def test_deeply_nested_body():
    with pytest.raises(BodyError):
        decoder_for(dict[str, Any])(b"[" * 100_000)


def test_type_that_can_not_be_decoded():
    with pytest.raises(ConfigError, match="a body can't be decoded as"):
        decoder_for(Order | Line)


class Plain:
    """No class with fields."""


class Holder(msgspec.Struct):
    many: list[Plain]


@pytest.mark.parametrize("kind", [Plain, list[Plain], Holder, dict[str, Plain | None]])
def test_type_with_a_part_that_can_not_be_decoded(kind):
    """It is known at the start, not by the first message."""
    with pytest.raises(ConfigError, match=r"a body can't be decoded as .*: objects of type Plain are not supported"):
        decoder_for(kind)


def test_pydantic_is_not_imported():
    code = (
        "import sys; from evenlane.engine.core.message.body_codec import decoder_for, encode\n"
        "assert {'a': 1} == decoder_for(dict)(encode({'a': 1}, None)[0])\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

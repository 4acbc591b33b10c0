"""Typed bodies: decoded before the handler; one that doesn't fit is a dead letter at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from evenlane import Evenlane, Message
from tests.support.app import Order, Running


@dataclass
class Item:
    id: int
    amount: int


class Entry(TypedDict):
    id: int
    amount: int


class Model(pydantic.BaseModel):
    id: int
    amount: int


KINDS = {
    "struct": (Message[Order], Order(1, 2)),
    "dataclass": (Message[Item], Item(1, 2)),
    "typed dict": (Message[Entry], {"id": 1, "amount": 2}),
    "pydantic": (Message[Model], Model(id=1, amount=2)),
    "dict": (Message[dict[str, int]], {"id": 1, "amount": 2}),
}
BODIES = {
    "json": (msgspec.json.encode({"id": 1, "amount": 2}), {}),
    "json by type": (msgspec.json.encode({"id": 1, "amount": 2}), {"Content-Type": "application/json"}),
    "msgpack": (msgspec.msgpack.encode({"id": 1, "amount": 2}), {"content-type": "application/msgpack"}),
    "x-msgpack": (msgspec.msgpack.encode({"id": 1, "amount": 2}), {"Content-Type": "application/x-msgpack"}),
}


@pytest.mark.parametrize("encoding", BODIES)
@pytest.mark.parametrize("kind", KINDS)
async def test_body_is_decoded_before_the_handler(kind, encoding):
    annotation, expected = KINDS[kind]
    app, seen = Evenlane(), []

    async def handle(message):
        seen.append((message.data, message.body))

    handle.__annotations__["message"] = annotation
    app.handler("acme")(handle)
    body, headers = BODIES[encoding]
    async with Running(app, "acme") as running:
        await running.put("acme", body, headers=headers)
        await running.all_gone()
        assert [] == running.dead()
    assert [(expected, body)] == seen


async def test_body_that_does_not_fit_is_a_dead_letter_that_names_the_field():
    app, seen = Evenlane(), []

    @app.handler
    async def handle(message: Message[Order]):
        seen.append(message)

    async with Running(app, "acme") as running:
        await running.put("acme", b'{"id": 1, "amount": "two"}')
        await running.all_gone()
        [dead] = running.dead()
    assert [] == seen
    assert b"Order" in dead.headers
    assert b"$.amount" in dead.headers
    assert b"Evenlane-Attempt: 1" in dead.headers


async def test_type_of_a_partial_handler_is_that_of_its_function():
    app, seen = Evenlane(), []

    async def handle(names, message: Message[Order]) -> None:
        names.append(message.data)

    app.handler(partial(handle, seen))
    async with Running(app, "acme") as running:
        await running.put("acme", b'{"id": 1, "amount": 2}')
        await running.all_gone()
    assert [Order(1, 2)] == seen


async def test_plain_handler_gets_a_decoded_body():
    app, seen = Evenlane(), []

    @app.handler
    def handle(message: Message[Order]):
        seen.append(message.data)

    async with Running(app, "acme") as running:
        await running.put("acme", b'{"id": 1, "amount": 2}')
        await running.all_gone()
    assert [Order(1, 2)] == seen


async def test_one_body_of_a_batch_does_not_fit():
    app, seen = Evenlane(), []

    @app.handler(batch=10, wait=0.1)
    async def handle(messages: list[Message[Order]]):
        seen.append(sorted(message.data.id for message in messages))

    async with Running(app, "acme") as running:
        for body in (b'{"id": 1, "amount": 2}', b"{", b'{"id": 3, "amount": 2}'):
            await running.put("acme", body)
        await running.all_gone()
        assert [b"{"] == [dead.body for dead in running.dead()]
    assert [[1, 3]] == seen


@pytest.mark.parametrize("is_async", [True, False])
async def test_no_body_of_a_batch_fits(is_async):
    app = Evenlane()

    async def handle(messages: list[Message[Order]]):
        raise AssertionError

    def plain(messages: list[Message[Order]]):
        raise AssertionError

    app.handler(batch=10)(handle if is_async else plain)
    async with Running(app, "acme") as running:
        await running.put("acme", b"{")
        await running.all_gone()
        assert 1 == len(running.dead())


@pytest.mark.parametrize("annotation", [Message, Message[Any], Message[bytes], Any, None])
async def test_without_a_type_the_data_is_the_body(annotation):
    app, seen = Evenlane(), []

    async def handle(message):
        seen.append(message.data)

    if annotation is not None:
        handle.__annotations__["message"] = annotation
    app.handler(handle)
    async with Running(app, "acme") as running:
        await running.put("acme", b"abc")
        await running.all_gone()
    assert [b"abc"] == seen


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "application/msgpack"}])
async def test_number_is_what_the_content_type_says(headers):
    """The byte 0x35 is 5 in JSON, and 53 in msgpack."""
    app, seen = Evenlane(), []

    @app.handler
    async def handle(message: Message[int]):
        seen.append(message.data)

    async with Running(app, "acme") as running:
        await running.put("acme", b"5", headers=headers)
        await running.all_gone()
    assert [53 if headers else 5] == seen

"""An application: its handlers, and the errors that a person can make."""

from __future__ import annotations

import pytest

from evenlane import ConfigError, Evenlane, InvalidName, Message, Reject, batch
from evenlane.engine.node.handlers.application import application_of
from tests.support.app import Order, Running


async def test_handlers_of_projects_get_their_messages():
    app, seen = Evenlane(), []

    @app.handler("orders-*", "acme")
    async def bill(message: Message) -> None:
        seen.append(("bill", message.project))

    @app.handler
    async def rest(message):
        seen.append(("rest", message.project))

    async with Running(app, "acme", "orders-1", "shop") as running:
        for project in ("acme", "orders-1", "shop"):
            await running.put(project)
        await running.all_gone()
    assert {("bill", "acme"), ("bill", "orders-1"), ("rest", "shop")} == set(seen)


async def test_handlers_of_kinds_get_their_messages():
    app, seen = Evenlane(kind_header="type"), []

    @app.handler(kind="refund")
    async def refund(message):
        seen.append(("refund", message.body))

    @app.handler
    def other(message):
        seen.append(("other", message.body))

    async with Running(app, "acme") as running:
        await running.put("acme", b"1", headers={"type": "refund"})
        await running.put("acme", b"2", headers={"type": "more"})
        await running.put("acme", b"3")
        await running.all_gone()
    assert {("refund", b"1"), ("other", b"2"), ("other", b"3")} == set(seen)


async def test_decorated_function_is_still_itself():
    app = Evenlane()

    async def handle(message):
        return 1

    assert handle is app.handler("acme")(handle)
    assert handle is app.fallback(handle)


async def test_fallback_takes_what_would_become_a_dead_letter():
    app, taken = Evenlane(), []

    @app.handler
    async def handle(message):
        raise Reject("no")

    @app.fallback
    async def give_up(message: Message[Order]):
        taken.append((message.data, message.reason))

    async with Running(app, "acme") as running:
        await running.put("acme", b'{"id": 1, "amount": 2}')
        await running.all_gone()
        assert [] == running.dead()
    assert [(Order(1, 2), "rejected")] == taken


def test_application_without_handlers():
    with pytest.raises(ConfigError, match=r"the application has no handlers: decorate a function with @app\.handler"):
        application_of(Evenlane())


def test_fallback_besides_an_application():
    app = Evenlane()
    app.handler(lambda message: None)
    with pytest.raises(ConfigError, match=r"use @app\.fallback"):
        application_of(app, lambda message: None)


def test_object_that_is_neither_an_application_nor_a_handler():
    with pytest.raises(ConfigError, match="5 is neither an application nor a handler"):
        application_of(5)


def test_two_handlers_for_one_pattern_are_named_at_once():
    app = Evenlane()

    @app.handler("orders-*")
    async def one(message):
        pass

    with pytest.raises(ConfigError, match=r"one \('orders-\*'\) and .*two \('orders-\*'\) are equally close"):

        @app.handler("orders-*")
        async def two(message):
            pass


def test_two_fallbacks():
    app = Evenlane()
    app.fallback(lambda message: None)
    with pytest.raises(ConfigError, match=r"an application has one fallback, and .* is it already"):
        app.fallback(lambda message: None)


async def no_argument() -> None: ...
async def two_arguments(message, other) -> None: ...
async def of_text(message: str) -> None: ...
async def of_unknown(message: Message[Nowhere]) -> None: ...  # noqa: F821
async def of_list(messages: list[Message]) -> None: ...
async def of_one(message: Message) -> None: ...
async def yields(message):
    yield


@pytest.mark.parametrize(
    ("function", "options", "sentence"),
    [
        (no_argument, {}, "must take one argument, the message"),
        (two_arguments, {}, "must take one argument, the message"),
        (yields, {}, "is a generator, which would never run"),
        (of_text, {}, "the handler of_text takes str: it must take a Message"),
        (of_unknown, {}, "takes .*Nowhere.*, and this can't be evaluated: name 'Nowhere' is not defined"),
        (of_list, {}, "the handler of_list takes a list: say how many messages at most"),
        (of_one, {"batch": 10}, "the handler of_one takes batches: annotate a list of messages"),
        (of_list, {"batch": 0}, "batch=0: it must be a whole number from 1"),
        (of_list, {"batch": 10, "wait": -1}, "wait=-1: it must be seconds from 0 to 60"),
        (of_list, {"batch": 10, "wait": float("nan")}, "wait=nan: it must be seconds"),
        (of_one, {"wait": 1}, "the handler of_one waits, but takes one message at a time"),
        (of_one, {"kind": ""}, "a handler's kind '' is not valid"),
        (3, {}, "the handler 3 is not a function"),
    ],
)
def test_handler_that_can_not_work(function, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Evenlane().handler("acme", **options)(function)


def test_project_that_is_no_text():
    with pytest.raises(ConfigError, match="a handler's project 5 is not text"):
        Evenlane().handler("acme", 5)


def test_kind_header_that_is_reserved():
    with pytest.raises(InvalidName, match="Evenlane-Kind' is reserved"):
        Evenlane(kind_header="Evenlane-Kind")


async def test_batch_by_its_decorator():
    app, seen = Evenlane(), []

    @app.handler("acme", wait=0.05)
    @batch(max=3)
    async def many(messages: list[Message]):
        seen.append(len(messages))

    async with Running(app, "acme") as running:
        for _ in range(3):
            await running.put("acme")
        await running.all_gone()
    assert [3] == seen

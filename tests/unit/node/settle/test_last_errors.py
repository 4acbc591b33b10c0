"""What a node says of a project's last error: the handler's error, not the outcome of its message (X12)."""

import pytest

from evenlane.engine.core.message.handler_exceptions import Reject
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import QUICK
from tests.support.node.world import World, topic
from tests.support.until import until


@pytest.mark.parametrize(
    ("error", "text"),
    [(RuntimeError("answers 503"), "RuntimeError: answers 503"), (Reject("no such card"), "Reject: no such card")],
)
async def test_error_of_the_last_attempt_is_kept_when_its_message_dies(error, text):
    """The reason of the dead letter, such as `failed once`, says less."""

    async def fails(message):
        raise error

    async with World(acme=topic(max_attempts=1, backoff=QUICK)) as world:
        await world.put()
        node = await world.node(fails)
        await until(world.dead)
        await world.all_gone()
        assert text == node.last_errors.text_of("acme")


async def test_expired_message_is_no_error():
    async with World(acme=topic(dead_letter_expired=True, backoff=QUICK)) as world:
        await world.put(headers={h.EXPIRES: str(world.store.now() - 1)})
        node = await world.node(lambda _: None)
        await until(world.dead)
        assert not node.last_errors.text_of("acme")


async def test_invalid_header_is_an_error():
    async with World(acme=topic(backoff=QUICK)) as world:
        await world.put(headers={h.EXPIRES: str(world.store.now())[:10]})
        node = await world.node(lambda _: None)
        await until(world.dead)
        assert h.EXPIRES in node.last_errors.text_of("acme")

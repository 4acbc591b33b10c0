"""F4, F12: invalid headers of foreign clients are logged, and end no node."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.core.message.handler_exceptions import Retry
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import QUICK, KeyedWorld, ordered
from tests.support.node.world import SECOND, World, topic
from tests.support.until import until

SKIPPED = "a header is not valid, and is passed over"
DEAD_LETTERED = "a header is not valid: its message goes to the dead letters"


@pytest.fixture
async def world():
    async with World(acme=topic(backoff=QUICK)) as made:
        yield made


@pytest.fixture
def log():
    with capture_logs() as lines:
        yield lines


def refused(log):
    return [(line["event"], line["project"], line["id"], line["header"]) for line in log if "header" in line]


def reasons(world):
    return [h.value(each.headers, h.REASON) for each in world.dead()]


@pytest.mark.parametrize("attempt", ["0", "-3", "many", "1" + "0" * 400])
async def test_invalid_attempt_header_counts_as_the_first_attempt(world, log, attempt):
    """F4."""
    seen = []

    async def handle(message):
        seen.append(message.attempt)
        if message.attempt == 1:
            raise Retry(0)

    message_id = await world.put(headers={h.ATTEMPT: attempt})
    await world.node(handle)
    await world.all_gone()
    assert [1, 2] == seen
    assert [(SKIPPED, "acme", message_id, "Evenlane-Attempt")] == refused(log)


@pytest.mark.parametrize("later", [False, True], ids=["lane", "delay stream"])
@pytest.mark.parametrize(
    ("header", "digits", "unit"), [(h.EXPIRES, 10, "seconds"), (h.DUE, 13, "milliseconds"), (h.DUE, 10, "seconds")]
)
async def test_instant_in_another_unit_is_dead_lettered_with_its_reason(world, log, later, header, digits, unit):
    """F12: the put was acknowledged, so the message must not expire silently."""
    text = str(world.store.now())[:digits]
    due = {"due": world.store.now()} if later else {}
    if later and header == h.DUE:
        message_id = await world.put(due=int(text))  # in an hour of 1970
    else:
        message_id = await world.put(headers={header: text}, **due)
    good = await world.put()
    node = await world.node()
    await world.all_gone()
    assert [good] == world.ids
    assert [f"{header} '{text}' is not valid: it must be nanoseconds since 1970, and looks like {unit}"] == reasons(
        world
    )
    assert [(DEAD_LETTERED, "acme", message_id, header)] == refused(log)
    assert (0, 1) == (node.counters.expired, node.counters.dead)


async def test_invalid_messages_are_charged_to_their_quota(log):
    """Q, V: they cost no attempt. A flood of them is dead-lettered no faster than the quota."""
    async with World(acme=topic(qps=50, burst=1, groups=1)) as world:
        for _ in range(10):
            await world.put(headers={h.EXPIRES: "1700000000"})
        node = await world.node()
        start = world.store.now()
        await until(lambda: node.counters.dead == 10)
        assert world.store.now() - start > 0.15 * SECOND
        assert {"1"} == {h.value(each.headers, h.ATTEMPT) for each in world.dead()}
        await world.all_gone()
    assert 1 == len(refused(log))
    assert [9] == [line["count"] for line in log if line["event"] == "more headers are not valid"]


async def test_invalid_message_frees_its_key():
    """E13: the next message of its key runs."""
    async with KeyedWorld(acme=ordered()) as world:
        await world.put(headers={h.KEY: "a", h.EXPIRES: "1700000000"})
        behind = await world.put_key("a")
        await world.node(world.handle)
        await world.all_gone()
        assert [behind] == [each.id for begun in world.begun.values() for each in begun]


async def test_message_with_nats_headers_is_retried(world):
    """L: its copy has none: otherwise the server might refuse each one, and the message would stay for ever."""
    seen = []

    async def handle(message):
        seen.append((message.attempt, message.headers))
        if message.attempt == 1:
            raise Retry(0)

    await world.put(headers={"Nats-Expected-Stream": "LANES_online_0", "Own": "1"})
    await world.node(handle)
    await world.all_gone()
    assert [(1, {"Own": "1"}), (2, {"Own": "1"})] == seen

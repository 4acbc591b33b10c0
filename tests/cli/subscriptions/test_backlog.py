"""`evenlane backlog --subscription`, and the backlogs in `evenlane subscriptions`, on real servers (L, K10)."""

import asyncio
import json

import nats
import pytest

from evenlane.engine.base.config.settings import load
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real

OWN = "--subscription", "audit"


@pytest.fixture
def audited(env, evenlane):
    """An environment with a topic and the subscription `audit`."""
    evenlane("topics", "set", "acme", "--qps", "100", "--max-attempts", "3", "--backoff", '{"base": "1h"}')
    assert 0 == evenlane("subscriptions", "create", "audit")[0]
    return env


@pytest.fixture
def backlogs(evenlane):
    """Returns (waiting, delayed) of each subscription."""

    def read():
        found = json.loads(evenlane("subscriptions", "list", "--json")[1])["subscriptions"]
        return {each["name"] or "": (each["waiting"], each["delayed"]) for each in found}

    return read


def test_commands_show_and_drop_one_subscriptions_backlog(audited, transcript, evenlane):
    """L, K10: no node owns the partitions, so the command settles the messages itself, and only for one subscription.
    The streams still have them.
    """
    for number in range(3):
        evenlane("put", "acme", f"body {number}", "--id", f"order-{number}", "--key", "a")
    evenlane("put", "acme", "later", "--id", "order-9", "--delay", "2h")
    transcript("subscriptions", "list")
    transcript("backlog", "peek", "acme", "--priority", "mid", "--limit", "1")
    transcript("backlog", "peek", "acme", "--priority", "mid", "--limit", "1", *OWN)
    transcript("backlog", "cancel", "acme", "order-1", *OWN)
    transcript("backlog", "cancel", "acme", "order-1", *OWN)
    transcript("backlog", "purge", "acme", "--yes")
    transcript("backlog", "purge", "acme", "--yes")
    transcript("subscriptions", "list")
    transcript("subscriptions", "get", "audit")
    transcript("backlog", "cancel", "acme", "order-9")
    transcript("backlog", "purge", "acme", "--yes", *OWN)
    transcript("subscriptions", "list")
    transcript.check()
    assert 4 == asyncio.run(_count(audited))


async def test_next_owners_hand_out_nothing_that_was_dropped(audited, evenlane_in_thread):
    """L, K10: whichever subscription dropped it; the others get it. Then the streams are empty."""
    for number in range(6):
        await evenlane_in_thread("put", "acme", "x", "--id", f"order-{number}", "--key", "a")
    assert 0 == (await evenlane_in_thread("backlog", "cancel", "acme", "order-1"))[0]
    assert 0 == (await evenlane_in_thread("backlog", "cancel", "acme", "order-3", *OWN))[0]
    assert 0 == (await evenlane_in_thread("backlog", "purge", "acme", "--yes"))[0]
    await evenlane_in_thread("put", "acme", "x", "--id", "order-6", "--key", "a")
    seen, audit = [], []

    async def note(message):
        (audit if message.subscription else seen).append(message.id)

    async def is_empty():
        return await _count(audited) == 0

    worker = running_engine(load({"node": "worker-1"}).settings, note)
    async with worker, running_engine(load({"node": "audit-1", "subscription": "audit"}).settings, note):
        await until(lambda: {"order-0", "order-2", "order-4", "order-5", "order-6"} <= {*audit}, 60)
        await until(lambda: seen, 60)
        await until(is_empty, 60, "the streams to be empty")
    assert ["order-6"] == seen
    assert 5 == len(audit)


async def test_owners_drop_for_their_own_subscription(audited, evenlane_in_thread):
    """L, K10: a retry of `audit` is in no stream of the unnamed one, and `cancel` finds it where it is. What a handler
    has at the moment can't be cancelled, and says so.
    """
    free, begun = asyncio.Event(), []

    async def hold(message):
        begun.append(message.id)
        await free.wait()

    async def fail(_message):
        raise ValueError("the archive is full")

    async def document(*arguments):
        code, out, error = await evenlane_in_thread(*arguments, "--json")
        assert code == 0, error
        return json.loads(out)

    async def delayed():
        return sum(each["delayed"] for each in (await document("backlog", "peek", "acme", *OWN))["priorities"])

    worker = running_engine(load({"node": "worker-1"}).settings, hold)
    async with worker, running_engine(load({"node": "audit-1", "subscription": "audit"}).settings, fail):
        await evenlane_in_thread("put", "acme", "x", "--id", "order-1")
        await until(lambda: begun, 60)

        async def is_retry():
            return await delayed() == 1

        await until(is_retry, 60)
        code, _, error = await evenlane_in_thread("backlog", "cancel", "acme", "order-1")
        assert 1 == code
        assert (
            "message 'order-1' of acme: cancelled for subscription 'audit'; for the subscription without a name it is"
            " being handled by worker-1 and can't be cancelled any more" in error
        )
        assert 0 == await delayed()
        await evenlane_in_thread("put", "acme", "x", "--id", "order-2")
        await until(is_retry, 60)
        purged = await document("backlog", "purge", "acme", "--yes", *OWN)
        assert ("audit", [], 1) == (purged["subscription"], purged["others"], purged["dropped"])
        assert 0 == await delayed()
        free.set()
        await until(lambda: "order-2" in begun, 60)


def test_retries_of_the_unnamed_one_are_no_backlog_of_others(audited, backlogs, evenlane):
    """K10: nor are messages of projects that a subscription doesn't get."""
    evenlane("topics", "set", "shop-1", "--qps", "100")
    evenlane("subscriptions", "create", "billing", "--projects", "shop-*")

    async def fail(_message):
        raise ValueError("no")

    async def run():
        async with running_engine(load({"node": "worker-1"}).settings, fail) as engine:
            await asyncio.to_thread(evenlane, "put", "acme", "x", "--id", "order-1")
            await until(lambda: engine.counters.retried == 1, 60)

    asyncio.run(run())
    evenlane("put", "shop-1", "x")
    assert {"": (1, 1), "audit": (2, 0), "billing": (1, 0)} == backlogs()


async def test_subscription_that_was_reset_shows_and_drops_what_it_gets_again(audited, evenlane_in_thread):
    """K10: no node has followed the reset yet, so its settle logs still say that all is settled."""

    async def totals():
        _, out, _ = await evenlane_in_thread("subscriptions", "get", "audit", "--json")
        return tuple(json.loads(out)[each] for each in ("waiting", "delayed"))

    for number in range(3):
        await evenlane_in_thread("put", "acme", "x", "--id", f"order-{number}", "--key", "a")
    own = load({"node": "audit-1", "subscription": "audit"}).settings
    seen = []

    async def note(message):
        seen.append(message.id)

    async with running_engine(own, note):
        await until(lambda: len(seen) == 3, 60)
    assert (0, 0) == await totals()
    code, _, error = await evenlane_in_thread("subscriptions", "reset", "audit", "--to", "first", "--yes")
    assert code == 0, error
    assert (3, 0) == await totals()
    assert 0 == (await evenlane_in_thread("backlog", "cancel", "acme", "order-1", *OWN))[0]
    assert (2, 0) == await totals()
    async with running_engine(own, note):
        await until(lambda: len(seen) == 5, 60)
    assert ["order-0", "order-2"] == sorted(seen[3:])
    assert (0, 0) == await totals()


def test_wrong_use_is_one_sentence(audited, transcript):
    """K10: the sentence lists the subscriptions that are there."""
    for name, *more in (("peek",), ("purge", "--yes"), ("cancel", "order-1")):
        transcript("backlog", name, "acme", *more, "--subscription", "audt")
        transcript("backlog", name, "acme", *more, "--subscription", "a_b")
        transcript("backlog", name, "nobody", *more, *OWN)
    transcript.check()


async def _count(env):
    """The messages in the shared streams."""
    client = await nats.connect(list(load().settings.nats_servers))
    try:
        streams = [f"{kind}_{env}_{number}" for kind in ("LANES", "LATER") for number in range(4)]
        return sum([(await client.jetstream().stream_info(stream)).state.messages for stream in streams])
    finally:
        await client.close()

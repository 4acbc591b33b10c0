"""`evenlane dlq --subscription` on real servers: each subscription has dead letters of its own (K3, K10)."""

import pytest

from evenlane.engine.admin.dead_letters.client import opened
from evenlane.engine.base.config.settings import load
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_dead_letters_of_a_subscription_are_its_own(env, evenlane_in_thread):
    """K3, K10: counted, read, replayed and dropped. Its replays reach no other subscription."""
    seen, audited = [], []

    async def note(message):
        seen.append(message.id)

    async def audit(message):
        audited.append(message.attempt)
        raise ValueError("the archive is full")

    async with running_engine(load({"node": "worker-1"}).settings, note):
        await evenlane_in_thread("topics", "set", "acme", "--qps", "100", "--max-attempts", "1")
        assert 0 == (await evenlane_in_thread("subscriptions", "create", "audit"))[0]
        own = load({"subscription": "audit", "node": "audit-1"}).settings
        async with running_engine(own, audit), opened(own) as ours, opened(load().settings) as theirs:
            await evenlane_in_thread("put", "acme", "an order", "--id", "order-1")

            async def count():
                return await ours.count("acme")

            await until(count, 30, "the dead letter")
            [letter] = await ours.oldest("acme", 10)
            assert ("order-1", "ValueError: the archive is full") == (letter.id, letter.error)
            assert 0 == await theirs.count("acme")
            assert 1 == (await ours.replay("acme")).replayed
            await until(lambda: len(audited) == 2, 30, "another attempt")
            await until(count, 30, "the next dead letter")
            assert 1 == await ours.drop("acme")
    assert ["order-1"] == seen


def test_commands_name_the_subscription(env, transcript, evenlane):
    """K10: one that isn't there is one sentence, which lists those that are."""
    evenlane("topics", "set", "acme", "--qps", "100")
    evenlane("subscriptions", "create", "audit")
    transcript("dlq", "list", "acme", "--subscription", "audit")
    transcript("dlq", "list", "acme", "--subscription", "audt")
    transcript("dlq", "list", "acme", "--subscription", "a_b")
    transcript("dlq", "drop", "acme", "--all", "--subscription", "audit")
    transcript("dlq", "keep", "12h", "--subscription", "audit")
    transcript.check()

"""An application of a named subscription in a test (K10)."""

from __future__ import annotations

import pytest

from evenlane import ConfigError, Evenlane, InvalidName, Message, Reject, Retry
from evenlane.testing import TestApp, message

TOPICS = {"acme": {"qps": 100, "burst": 50}, "shop": {"qps": 100, "burst": 50}}


def audited(**options):
    app = Evenlane(**options)

    @app.handler("acme")
    async def note(message: Message) -> None:
        if message.attempt == 1:
            raise Retry(after=60)

    @app.handler("shop", batch=10)
    def note_all(messages: list[Message]) -> None:
        for each in messages:
            each.fail(Reject(f"not for {each.subscription!r}"))

    return app


@pytest.mark.parametrize(
    ("app", "options", "expected"),
    [
        (audited(), {}, ""),
        (audited(subscription="audit"), {}, "audit"),
        (audited(), {"subscription": "audit"}, "audit"),
        (audited(subscription="audit"), {"subscription": "audit"}, "audit"),
    ],
)
async def test_messages_name_the_subscription(app, options, expected):
    """Each handler sees it: async, in a batch, of a retry, of a replay."""
    async with TestApp(app, topics=TOPICS, **options) as t:
        await t.put("acme", b"1", delay=7_200)
        await t.put("acme", b"2")
        await t.put("shop", b"3", id="order-3")
        await t.run_until_idle()
        assert [expected, expected] == [each.message.subscription for each in t.failed]
        assert (2, 0) == (t.backlog("acme"), t.backlog("shop"))
        await t.advance(61)
        assert [(b"2", 2, expected)] == [(each.body, each.attempt, each.subscription) for each in t.handled]
        [dead] = t.dead_letters
        assert ("order-3", f"not for {expected!r}") == (dead.id, dead.error)
        assert 1 == await t.replay("shop")
        await t.run_until_idle()
        assert ["order-3"] == [each.id for each in t.dead_letters]
        await t.advance(7_200 + 61)
        assert [b"2", b"1"] == [each.body for each in t.handled]


@pytest.mark.parametrize(("subscription", "at_once"), [(None, 5), ("audit", 1)])
async def test_topic_may_set_the_quota_of_a_subscription(subscription, at_once):
    """K10, E3: of a backlog after a pause, each handles its own burst at once, and the rest at its own rate."""
    app = Evenlane()

    @app.handler("acme")
    def accept(_message: Message) -> None:
        pass

    topics = {"acme": {"qps": 1, "burst": 5, "subscriptions": {"audit": {"burst": 1}}}}
    async with TestApp(app, topics=topics, subscription=subscription) as t:
        for number in range(8):
            await t.put("acme", b"%d" % number)
        await t.advance(0)
        assert at_once == len(t.handled)
        await t.advance(10)
        assert len(t.handled) == 8


def test_message_to_call_a_handler_with():
    assert ("", "audit") == (message("acme").subscription, message("acme", subscription="audit").subscription)
    with pytest.raises(InvalidName, match="subscription 'a_b' is not valid"):
        message("acme", subscription="a_b")


async def test_wrong_use_is_one_sentence():
    with pytest.raises(InvalidName, match=r"subscription 'a\.b' is not valid"):
        Evenlane(subscription="a.b")
    with pytest.raises(InvalidName, match="subscription '' is not valid"):
        TestApp(audited(), topics=TOPICS, subscription="")
    with pytest.raises(ConfigError, match="handles messages for subscription 'audit', and the test for 'billing'"):
        async with TestApp(audited(subscription="audit"), topics=TOPICS, subscription="billing"):
            pass

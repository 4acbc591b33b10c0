"""The handlers in examples/, tested with the kit that users have."""

from __future__ import annotations

import pytest

from evenlane import Reject, Retry
from evenlane.testing import TestApp, message
from examples import batch, handler, retry

TOPICS = {"shop": {"qps": 50, "burst": 50, "groups": 1, "max_attempts": 3, "backoff": {"base": 1, "jitter": 0}}}


async def test_handler_prints_each_message(capsys):
    async with TestApp(handler.handle, topics=TOPICS) as t:
        await t.put("shop", b"hello", priority="high")
        await t.run_until_idle()
    assert "shop high: hello" in capsys.readouterr().out


async def test_batch_takes_the_messages_of_a_queue_at_once(capsys):
    async with TestApp(batch.handle, topics=TOPICS) as t:
        for number in range(30):
            await t.put("shop", b"%d" % number)
        await t.run_until_idle()
        assert 30 == len(t.handled)
    assert "shop mid: 30 at once" in capsys.readouterr().out


async def test_retry_handles_a_message_in_its_second_attempt_and_repeats_nothing(capsys):
    async with TestApp(retry.handle, topics=TOPICS) as t:
        await t.put("shop", b"later", id="one")
        await t.run_until_idle()
        assert [] == t.handled
        await t.advance(2)
        assert [2] == [each.attempt for each in t.handled]
        await retry.handle(message("shop", b"later", id="one"))
    assert 1 == capsys.readouterr().out.count("one: done in attempt 2")


async def test_retry_rejects_what_is_hopeless_and_gives_up_after_three_attempts():
    async with TestApp(retry.handle, topics=TOPICS) as t:
        await t.put("shop", b"broken", id="two")
        await t.put("shop", b"crash", id="three")
        await t.advance(10)
        assert [("two", "rejected", 1), ("three", "failed 3 times", 3)] == [
            (each.id, each.reason, each.attempts) for each in t.dead_letters
        ]


async def test_retry_alone():
    with pytest.raises(Retry):
        await retry.handle(message("shop", b"later", id="four"))
    with pytest.raises(Reject, match="no order number"):
        await retry.handle(message("shop", b"broken", id="five"))

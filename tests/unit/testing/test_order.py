"""The order in which messages start: it is that of a real node."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from evenlane import Reject, Retry, batch
from evenlane.testing import TestApp

FAST = {"qps": 1000, "burst": 100}
ONE_GROUP = {"qps": 100, "groups": 1, "burst": 100}


async def handle(message):
    pass


async def test_the_most_urgent_priority_runs_first():
    async with TestApp(handle, topics={"acme": ONE_GROUP}) as t:
        for priority in ("low", "high", "mid"):
            await t.put("acme", priority.encode(), priority=priority)
        await t.run_until_idle()
        assert [b"high", b"mid", b"low"] == [message.body for message in t.handled]


async def test_nothing_is_handled_before_the_test_lets_it_run():
    async with TestApp(handle, topics={"acme": FAST}) as t:
        await t.put("acme", b"x")
        await asyncio.sleep(0.01)
        assert [] == t.handled
        assert 1 == t.backlog("acme")
        await t.run_until_idle()
        assert (1, 0) == (len(t.handled), t.backlog("acme"))


async def test_messages_of_a_key_run_one_after_another_through_a_retry():
    async def by_turn(message):
        if message.body == b"1" and message.attempt == 1:
            raise Retry(after=5)

    async with TestApp(by_turn, topics={"acme": {**FAST, "ordered": True}}) as t:
        for body in (b"1", b"2", b"3"):
            await t.put("acme", body, key="k")
        await t.put("acme", b"other", key="another")
        await t.run_until_idle()
        assert [b"other"] == [message.body for message in t.handled]
        assert 3 == t.backlog("acme")
        await t.advance(5.1)
        assert [b"other", b"1", b"2", b"3"] == [message.body for message in t.handled]


async def test_two_projects_share_by_weight():
    async def work(_message):
        await asyncio.sleep(0.1)

    topics = {"one": {"qps": 1000, "weight": 1}, "three": {"qps": 1000, "weight": 3}}
    async with TestApp(work, topics=topics, concurrency=8) as t:
        for _ in range(400):
            await t.put("one", b"x")
            await t.put("three", b"x")
        await t.advance(5)
        shares = Counter(message.project for message in t.handled)
        assert 2.7 <= shares["three"] / shares["one"] <= 3.3


async def test_two_runs_with_one_seed_are_alike():
    async def run():
        async def fail(message):
            raise ValueError(message.id)

        async with TestApp(fail, topics={"acme": {**FAST, "backoff": {"jitter": 1}}}, seed=7) as t:
            for number in range(20):
                await t.put("acme", b"x", id=f"m{number}")
            await t.advance(20)
            return [str(each.error) for each in t.failed]

    assert await run() == await run()


async def test_batches_are_collected_and_one_message_may_fail():
    sizes = []

    @batch(max=3)
    async def work(messages):
        sizes.append(len(messages))
        messages[0].fail(Reject("the first"))

    async with TestApp(work, topics={"acme": ONE_GROUP}) as t:
        for number in range(5):
            await t.put("acme", b"x", id=f"m{number}")
        await t.run_until_idle()
        assert [3, 2] == sizes
        assert ["m1", "m2", "m4"] == [message.id for message in t.handled]
        assert [("m0", "rejected"), ("m3", "rejected")] == [(each.id, each.reason) for each in t.dead_letters]


async def test_plain_handlers_run_in_threads_and_are_waited_for():
    import threading
    import time

    names = []

    def work(_message):
        time.sleep(0.02)
        names.append(threading.current_thread().name)

    async with TestApp(work, topics={"acme": FAST}) as t:
        begun = t.now
        for _ in range(3):
            await t.put("acme", b"x")
        await t.run_until_idle()
        assert 3 == len(t.handled)
        assert begun == t.now
        assert all(name.startswith("handler") for name in names)


async def test_a_call_in_an_executor_is_waited_for():
    import time

    async def work(_message):
        await asyncio.to_thread(time.sleep, 0.02)

    async with TestApp(work, topics={"acme": FAST}) as t:
        await t.put("acme", b"x")
        await t.run_until_idle()
        assert 1 == len(t.handled)


async def test_a_handler_may_use_a_real_socket():
    async def greet(_reader, writer):
        await asyncio.sleep(0.01)
        writer.write(b"hello\n")
        writer.close()

    async def work(message):
        port = int(message.body)
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            line = await reader.readline()
        writer.close()
        if line != b"hello\n":
            raise ValueError(line)

    async with TestApp(work, topics={"acme": FAST}) as t:
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        await t.put("acme", str(server.sockets[0].getsockname()[1]).encode())
        await t.run_until_idle()
        assert ([], 1) == (t.failed, len(t.handled))
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("fails", [False, True])
async def test_dead_letters_can_be_replayed(fails):
    broken = [True]

    async def work(_message):
        if broken[0]:
            raise Reject("no order number")

    async with TestApp(work, topics={"acme": FAST}) as t:
        await t.put("acme", b"x", id="m1")
        await t.run_until_idle()
        assert ["no order number"] == [each.error for each in t.dead_letters]
        broken[0] = fails
        assert 1 == await t.replay("acme")
        assert [] == t.dead_letters
        await t.run_until_idle()
        assert (int(fails), int(not fails)) == (len(t.dead_letters), len(t.handled))
        assert ["m1"] == [message.id for message in t.handled] or fails

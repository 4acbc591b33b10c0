"""All who watch share one look a second; who is slow misses looks, never sees old ones."""

import asyncio
import json

import pytest

from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.http import live_feed as module
from evenlane.engine.http.recent_history import RecentHistory
from evenlane.engine.http.routes.reads import Watched
from tests.support.http.serving import OVERVIEW, QUICK, FakeNode, served
from tests.support.until import until


def with_tenants(**backlogs):
    tenants = [
        {"project": name, "backlog": backlog, "arriving": 1.0, "leaving": None} for name, backlog in backlogs.items()
    ]
    return OVERVIEW | {"tenants": tenants}


class Events:
    """What an EventSource would hear."""

    def __init__(self, response):
        self._lines = response.content

    async def next(self):
        """(kind, document) of the next one, None at the end."""
        kind = ""
        while line := await asyncio.wait_for(self._lines.readline(), 10):
            name, _, rest = line.decode().rstrip("\r\n").partition(": ")
            if name == "event":
                kind = rest
            elif name == "data":
                return kind, json.loads(rest)
        return None


async def test_first_what_was_then_what_is():
    async with served(FakeNode(**QUICK)) as (get, node):
        node.shown = with_tenants(acme=3)
        async with get.client.get(f"{get.address}/api/events") as response:
            assert ("text/event-stream", "no-store") == (
                response.headers["content-type"].partition(";")[0], response.headers["cache-control"]
            )  # fmt: skip
            events = Events(response)
            assert ("history", {"at": [], "totals": {"backlog": [], "arriving": [], "leaving": []}, "tenants": {}}) == (
                await events.next()
            )
            assert ("overview", node.shown) == await events.next()
        async with get.client.get(f"{get.address}/api/events") as response:
            kind, past = await Events(response).next()
            assert ("history", {"acme"}) == (kind, past["tenants"].keys())
            assert 3 == past["tenants"]["acme"]["backlog"][0]
            assert len(past["at"]) == len(past["tenants"]["acme"]["leaving"])


async def test_any_number_watches_and_one_asks():
    """While somebody watches about one look a second, by whomever; none when nobody does."""
    async with served(FakeNode(**QUICK)) as (get, node):
        assert 0 == node.looked
        urls = [f"{get.address}/api/events"] * 20
        responses = await asyncio.gather(*(get.client.get(url) for url in urls))
        for _ in range(5):
            received = [await Events(response).next() for response in responses]
        assert {"overview"} == {kind for kind, _ in received}
        assert node.looked <= 15
        for response in responses:
            response.close()
        await until(lambda: not node.watching._viewers)
        assert node.watching._watching is None


async def test_a_look_is_shared_with_who_asks_once():
    async with served() as (get, node):
        answers = await asyncio.gather(*(get("/api/overview") for _ in range(10)))
        assert ([200] * 10, 1) == ([status for status, _, _ in answers], node.looked)


async def test_why_there_is_no_overview_is_told_and_it_goes_on():
    async with served(FakeNode(**QUICK)) as (get, node):
        node.fails = Unreachable("node n has not joined\nthe cluster")
        async with get.client.get(f"{get.address}/api/events") as response:
            events = Events(response)
            assert "history" == (await events.next())[0]
            assert ("trouble", {"error": "node n has not joined the cluster"}) == await events.next()
            node.fails = ZeroDivisionError("secret")
            while "could not look" not in (update := await events.next())[1]["error"]:
                pass
            assert "secret" not in json.dumps(update)
            node.fails = None
            while (await events.next())[0] == "trouble":
                pass
        node.fails = Unreachable("etcd does not answer")
        assert 503 == (await get("/api/overview"))[0]


async def test_too_many_who_watch_are_sent_elsewhere():
    async with served(FakeNode(most_viewers=2)) as (get, _):
        for _ in range(2):
            await Events(await get.client.get(f"{get.address}/api/events")).next()
        status, _, text = await get("/api/events")
        assert (503, {"error": "2 watch this node already: look at another one"}) == (status, json.loads(text))


async def test_who_watches_counts_from_the_first_moment():
    """However many come at once, before any of them has been told something; and until each has left."""
    node = FakeNode()
    viewers = [node.watching.watch() for _ in range(32)]
    with pytest.raises(EvenlaneError, match="32 watch this node already"):
        node.watching.watch()
    viewers.pop().leave()
    viewers.append(node.watching.watch())
    for viewer in viewers:
        viewer.leave()
    assert (set(), None) == (node.watching._viewers, node.watching._watching)


async def test_who_is_gone_before_the_first_word_leaves_no_place_taken():
    node = FakeNode()

    async def never():
        await asyncio.Event().wait()

    async def gone(_message):
        raise OSError("gone")

    response = Watched(node.watching.watch())
    with pytest.raises(OSError, match="gone"):
        await response({"type": "http", "method": "GET"}, never, gone)
    assert set() == node.watching._viewers


async def test_who_comes_to_a_node_that_ends_starts_nothing():
    node = FakeNode()
    viewer = node.watching.watch()
    await node.watching.close()
    assert ["history"] == [update.kind async for update in viewer.looks()]
    assert node.watching._watching.done()


async def test_why_there_is_none_is_remembered_too():
    """With etcd gone each question takes seconds: those who wait don't have it asked one after another."""
    async with served() as (get, node):
        node.fails = Unreachable("etcd does not answer")
        answers = await asyncio.gather(*(get("/api/overview") for _ in range(10)))
        assert ([503] * 10, 1) == ([status for status, _, _ in answers], node.looked)


async def test_a_look_is_written_once():
    """What is sent to programs and to who watches are the same bytes."""
    node = FakeNode()
    first, second = await node.watching.now(), await node.watching.now()
    assert first is second
    assert OVERVIEW == json.loads(first)


async def test_the_server_ends_at_once_although_somebody_watches():
    """The node's drain waits for nobody who looks."""
    async with served() as (get, node):
        response = await get.client.get(f"{get.address}/api/events")
        events = Events(response)
        await events.next()
        await events.next()
        async with asyncio.timeout(0.9):
            await node.watching.close()
            while await events.next() is not None:
                pass
        with pytest.raises(EvenlaneError, match="the node is ending"):
            node.watching.watch()


async def test_who_takes_nothing_ends_with_the_server_and_nothing_is_told(caplog):
    """The drain doesn't wait for a `curl` that was stopped, and the log has no traceback of it."""
    async with served(FakeNode(**QUICK)) as (get, node):
        node.shown = with_tenants(**{f"tenant-{number}": number for number in range(20_000)})
        port = int(get.address.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(lambda: any(task.get_name() == "watching" for task in asyncio.all_tasks()))
        looked = node.looked
        await until(lambda: node.looked > looked + 10)
    assert [] == [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    writer.close()


async def test_who_is_slow_sees_the_newest():
    viewer = module.Viewer(RecentHistory(), None, lambda _: None)
    looks = viewer.looks()
    assert "history" == (await anext(looks)).kind
    for number in range(5):
        viewer.show(module.FeedUpdate("overview", b"%d" % number))
    assert b"4" == (await anext(looks)).event
    following = asyncio.create_task(anext(looks))
    await asyncio.sleep(0)
    assert not following.done()
    viewer.show(module.FeedUpdate("overview", b"5"))
    assert b"5" == (await following).event


async def test_who_watches_for_long_keeps_nothing_of_what_was():
    """It is told once; else each of them would hold the two minutes before it came for as long as it watches."""
    history = RecentHistory()
    history.add(with_tenants(acme=1), 1)
    viewer = module.Viewer(history.copy(), None, lambda _: None)
    assert b'"acme"' in (await anext(viewer.looks())).event
    assert {} == viewer._before.document()["tenants"]


def test_a_clock_that_is_put_back_begins_the_past_anew():
    history, second = RecentHistory(), 1_000_000_000
    for at in (*range(3_600, 3_700), *range(100, 250)):
        history.add(with_tenants(acme=at), at * second)
    assert [at * 1_000 for at in range(130, 250)] == history.document()["at"]


def test_the_past_is_two_minutes_of_those_who_are_busy_now():
    """A tenant that came later has gaps before it; what is older is forgotten."""
    history, second = RecentHistory(), 1_000_000_000
    for at in range(1, 200):
        backlogs = {"acme": at} | ({"late": 7} if at > 197 else {}) | ({"gone": 1} if at < 150 else {})
        history.add(with_tenants(**backlogs), at * second)
    update = history.copy().document()
    assert (120, 80_000, 199_000) == (len(update["at"]), update["at"][0], update["at"][-1])
    assert {"acme", "late"} == update["tenants"].keys()
    assert [*range(80, 200)] == update["tenants"]["acme"]["backlog"]
    assert [None] * 118 + [7, 7] == update["tenants"]["late"]["backlog"]
    assert {None} == {*update["tenants"]["acme"]["leaving"]}

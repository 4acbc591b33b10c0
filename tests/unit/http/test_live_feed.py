"""Live feed: all viewers share one overview per second. A slow viewer misses some, and never gets an old one."""

import asyncio
import json
import time

import pytest

from evenlane.engine.admin.history.merge import PastSecond
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.http import live_feed as module
from evenlane.engine.http.recent_history import RecentHistory
from evenlane.engine.http.routes.reads import ViewerStream
from tests.support.http.serving import OVERVIEW, QUICK, FakeNode, served
from tests.support.until import until

SECOND = 1_000_000_000


def with_tenants(**backlogs):
    tenants = [
        {"project": name, "backlog": backlog, "arriving": 1.0, "handled": None} for name, backlog in backlogs.items()
    ]
    return OVERVIEW | {"tenants": tenants}


def is_watching():
    """Whether any feed requests overviews."""
    return any(task.get_name() == "watching" for task in asyncio.all_tasks())


class Events:
    """The events that an EventSource would receive."""

    def __init__(self, response):
        self._lines = response.content

    async def next(self):
        """Return (kind, document) of the next event, None at the end."""
        kind = ""
        while line := await asyncio.wait_for(self._lines.readline(), 30):
            name, _, rest = line.decode().rstrip("\r\n").partition(": ")
            if name == "event":
                kind = rest
            elif name == "data":
                return kind, json.loads(rest)
        return None


async def test_history_precedes_overviews():
    async with served(FakeNode(**QUICK)) as (get, node):
        node.shown = with_tenants(acme=3)
        async with get.client.get(f"{get.address}/api/events") as response:
            assert ("text/event-stream", "no-store") == (
                response.headers["content-type"].partition(";")[0], response.headers["cache-control"]
            )  # fmt: skip
            events = Events(response)
            kind, past = await events.next()
            assert ("history", {"at", "totals", "tenants"}) == (kind, past.keys())
            assert ("overview", node.shown) == await events.next()
        async with get.client.get(f"{get.address}/api/events") as response:
            kind, past = await Events(response).next()
            assert ("history", {"acme"}) == (kind, past["tenants"].keys())
            assert 3 == past["tenants"]["acme"]["backlog"][0]
            assert len(past["at"]) == len(past["tenants"]["acme"]["handled"])


def remembered(*seconds, backlog=9.0):
    """What nodes remember of these seconds."""
    return [
        PastSecond(
            at * SECOND, (backlog, 1.0, None, 0.0), {"acme": (backlog, 1.0, None, 0.0), "gone": (1.0, 0.0, 0.0, 0.0)}
        )
        for at in seconds
    ]


async def test_first_viewer_gets_what_the_nodes_remember():
    """The charts aren't empty in the middle of an incident; nobody is asked again while viewers are there."""
    async with served(FakeNode(**QUICK)) as (get, node):
        now = time.time_ns() // SECOND
        node.shown, node.past = with_tenants(acme=3), remembered(*range(now - 100, now))
        for expected in (1, 1):
            responses = [await get.client.get(f"{get.address}/api/events") for _ in range(3)]
            for response in responses:
                events = Events(response)
                kind, past = await events.next()
                assert ("history", 100) == (kind, sum(figure == 9 for figure in past["totals"]["backlog"]))
                assert past["at"] == sorted(past["at"])
                while (await events.next())[0] != "overview":
                    pass
            assert expected == node.remembered
        for response in responses:
            response.close()


async def test_history_is_requested_again_after_the_last_viewer_has_left():
    node = FakeNode(**QUICK)
    for expected in (1, 2):
        viewers = [node.watching.watch() for _ in range(2)]
        for viewer in viewers:
            assert "history" == (await anext(viewer.looks())).kind
            viewer.leave()
        await until(lambda: not is_watching())
        assert expected <= node.remembered


async def test_history_that_nobody_tells_is_asked_for_again():
    """The first viewer sees what follows; the next one asks again."""
    node = FakeNode(**QUICK)
    node.fails = Unreachable("etcd does not answer")
    assert b'"at":[]' in (await anext(node.watching.watch().looks())).event
    node.fails, node.past = None, remembered(1, 2)
    assert b'"at":[1000,2000]' in (await anext(node.watching.watch().looks())).event
    await node.watching.close()


def test_overviews_follow_what_nodes_remember():
    history = RecentHistory()
    for at in (5, 100, 101):
        history.add(with_tenants(acme=at), at * SECOND)
    history.put_before(remembered(98, 99, 100))
    assert [9, 9, 9, 101] == history.document()["tenants"]["acme"]["backlog"]
    history.put_before([])
    assert [98_000, 99_000, 100_000, 101_000] == history.document()["at"]


async def test_viewers_share_overviews_and_none_is_requested_without_them():
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
        await until(lambda: not is_watching())


async def test_concurrent_requests_share_an_overview():
    async with served() as (get, node):
        answers = await asyncio.gather(*(get("/api/overview") for _ in range(10)))
        assert ([200] * 10, 1) == ([status for status, _, _ in answers], node.looked)


async def test_trouble_is_sent_until_overviews_continue():
    async with served(FakeNode(**QUICK)) as (get, node):
        node.fails = Unreachable("node n has not joined\nthe cluster")
        async with get.client.get(f"{get.address}/api/events") as response:
            events = Events(response)
            assert "history" == (await events.next())[0]
            assert ("trouble", {"error": "node n has not joined the cluster"}) == await events.next()
            node.fails = ZeroDivisionError("secret")
            while "could not get an overview" not in (update := await events.next())[1]["error"]:
                pass
            assert "secret" not in json.dumps(update)
            node.fails = None
            while (await events.next())[0] == "trouble":
                pass
        node.fails = Unreachable("etcd does not answer")
        assert 503 == (await get("/api/overview"))[0]


async def test_excess_viewers_are_refused():
    async with served(FakeNode(most_viewers=2)) as (get, _):
        for _ in range(2):
            await Events(await get.client.get(f"{get.address}/api/events")).next()
        status, _, text = await get("/api/events")
        sentence = "2 viewers are already watching this node: use another one"
        assert (503, {"error": sentence, "type": "EvenlaneError"}) == (status, json.loads(text))


async def test_viewer_counts_from_the_beginning_until_it_leaves():
    """Also before its first event."""
    node = FakeNode()
    viewers = [node.watching.watch() for _ in range(32)]
    with pytest.raises(EvenlaneError, match="32 viewers are already watching this node"):
        node.watching.watch()
    viewers.pop().leave()
    viewers.append(node.watching.watch())
    for viewer in viewers:
        viewer.leave()
    await until(lambda: not is_watching())
    for viewer in [node.watching.watch() for _ in range(32)]:
        viewer.leave()


async def test_viewer_that_is_gone_before_its_first_event_frees_its_place():
    node = FakeNode(most_viewers=1)

    async def never():
        await asyncio.Event().wait()

    async def gone(_message):
        raise OSError("gone")

    response = ViewerStream(node.watching.watch())
    with pytest.raises(OSError, match="gone"):
        await response({"type": "http", "method": "GET"}, never, gone)
    node.watching.watch().leave()


async def test_viewer_of_a_closed_feed_gets_the_history_only():
    node = FakeNode()
    viewer = node.watching.watch()
    await node.watching.close()
    assert ["history"] == [update.kind async for update in viewer.looks()]
    assert not is_watching()


async def test_concurrent_requests_share_a_failure():
    """Without etcd each request takes seconds."""
    async with served() as (get, node):
        node.fails = Unreachable("etcd does not answer")
        answers = await asyncio.gather(*(get("/api/overview") for _ in range(10)))
        assert ([503] * 10, 1) == ([status for status, _, _ in answers], node.looked)


async def test_overview_is_encoded_once():
    node = FakeNode()
    first, second = await node.watching.now(), await node.watching.now()
    assert first is second
    assert OVERVIEW == json.loads(first)


async def test_close_ends_viewers_at_once():
    """A node's drain doesn't wait for them."""
    async with served() as (get, node):
        response = await get.client.get(f"{get.address}/api/events")
        events = Events(response)
        await events.next()
        await events.next()
        async with asyncio.timeout(30):
            await node.watching.close()
            while await events.next() is not None:
                pass
        with pytest.raises(EvenlaneError, match="the node is shutting down"):
            node.watching.watch()


async def test_viewer_that_reads_nothing_ends_with_the_server(caplog):
    """A node's drain doesn't wait for a stopped `curl`, and the log has no traceback of it."""
    async with served(FakeNode(**QUICK)) as (get, node):
        node.shown = with_tenants(**{f"tenant-{number}": number for number in range(20_000)})
        port = int(get.address.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(b"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await until(is_watching)
        looked = node.looked
        await until(lambda: node.looked > looked + 10)
    assert [] == [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    writer.close()


async def no_history():
    return module.FeedUpdate("history", b"{}")


async def test_slow_viewer_gets_the_newest_overview():
    viewer = module.Viewer(no_history, None, lambda _: None)
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


def test_clock_set_back_restarts_the_history():
    history, second = RecentHistory(), 1_000_000_000
    for at in (*range(3_600, 3_700), *range(100, 250)):
        history.add(with_tenants(acme=at), at * second)
    assert [at * 1_000 for at in range(130, 250)] == history.document()["at"]


def test_history_is_two_minutes_of_the_present_tenants():
    """A tenant that came later has gaps before, and older points are dropped."""
    history, second = RecentHistory(), 1_000_000_000
    for at in range(1, 200):
        backlogs = {"acme": at} | ({"late": 7} if at > 197 else {}) | ({"gone": 1} if at < 150 else {})
        history.add(with_tenants(**backlogs), at * second)
    update = history.copy().document()
    assert (120, 80_000, 199_000) == (len(update["at"]), update["at"][0], update["at"][-1])
    assert {"acme", "late"} == update["tenants"].keys()
    assert [*range(80, 200)] == update["tenants"]["acme"]["backlog"]
    assert [None] * 118 + [7, 7] == update["tenants"]["late"]["backlog"]
    assert {None} == {*update["tenants"]["acme"]["handled"]}

"""Removal above a watermark that one subscription holds: exactly what all of them have settled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from evenlane.engine.admin.backlog.settle_unowned import make_drop
from evenlane.engine.base import names
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import Head
from evenlane.engine.core.records.settle_record import encode
from evenlane.engine.node.tuning import NodeTuning
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.node.subscriptions import AUDIT, start
from tests.support.node.world import LANES, World, is_durable
from tests.support.until import until

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Feed

AT_ONCE = NodeTuning(pinned_for=0)


class Handler:
    """Handles messages, except those in `held`, which end once `release` is called."""

    def __init__(self, *held: str) -> None:
        self.held, self.released = {*held}, asyncio.Event()
        self.handled: list[str] = []

    async def __call__(self, message: Any) -> None:
        if message.id in self.held:
            await self.released.wait()
        self.handled.append(message.id)

    def release(self) -> None:
        self.released.set()


def stored(world: World, kind: str) -> set[str]:
    lanes = [lane for lane in LANES if lane.kind == kind]
    bodies = [each.body for lane in lanes for each in world.server.messages(names.stream("online", lane))]
    return {body.decode() for body in bodies}


async def put(world: World, count: int, kind: str) -> list[str]:
    """Put messages whose body is their id."""
    due = world.store.now() if kind == "later" else None
    return [await world.put(b"%d" % n, id=n, due=due) for n in range(1, count + 1)]


async def hold_some(world: World, kind: str) -> tuple[Handler, Handler]:
    """Each of two subscriptions is stuck at other messages of 20, and has handled the rest."""
    mine, theirs = Handler("1", "7", "8"), Handler("3", "8", "12")
    node = await start(world, mine, tuning=AT_ONCE)
    audit = await start(world, theirs, AUDIT, tuning=AT_ONCE)
    await put(world, 20, kind)
    await until(lambda: (17, 17) == (len(mine.handled), len(theirs.handled)) and is_durable(node) and is_durable(audit))
    return mine, theirs


async def test_messages_that_all_have_settled_go() -> None:
    """K10, E5: a lane whose watermark is held in two subscriptions keeps what at least one of them still needs."""
    async with World() as world:
        mine, theirs = await hold_some(world, "lanes")
        await until(lambda: stored(world, "lanes") == {"1", "3", "7", "8", "12"})
        theirs.release()
        await until(lambda: stored(world, "lanes") == {"1", "7", "8"})
        mine.release()
        await world.all_gone()
        assert [*map(str, range(1, 21))] == sorted(mine.handled, key=int) == sorted(theirs.handled, key=int)


async def test_delayed_messages_that_all_have_settled_go() -> None:
    """K1, K10: one subscription that is stuck doesn't hold what it has settled itself."""
    async with World() as world:
        mine, theirs = await hold_some(world, "later")
        await until(lambda: stored(world, "later") == {"1", "3", "7", "8", "12"})
        mine.release()
        await until(lambda: stored(world, "later") == {"3", "8", "12"})
        theirs.release()
        await world.all_gone()


async def test_nothing_is_asked_once_all_is_gone() -> None:
    """K10: an idle environment with two subscriptions costs no requests."""
    async with World() as world:
        mine, theirs = await hold_some(world, "lanes")
        mine.release()
        theirs.release()
        await world.all_gone()
        await until(
            lambda: not any(node.settler.truncator.lanes for node in world.nodes), what="nobody to look after a lane"
        )


async def test_messages_that_a_command_drops_go() -> None:
    """K10, X9: where nobody owns, a command drops messages by a record with the number of the last one."""
    async with World() as world:
        audit = world.new_store(AUDIT)
        await audit.open()
        await audit.create_own_streams()
        await put(world, 5, "lanes")
        lane = world.busy_lane
        state, heads = await world.store.state(lane), [Head(n, 0, 0, b"") for n in range(1, 6)]
        nothing = make_drop(LogState(7, number=3, created=state.created), state, heads[:1])
        position = await audit.append_log(lane, encode(replace(nothing, runs=b"")), 0)
        mine = Handler()
        node = await start(world, mine, tuning=AT_ONCE)
        await until(lambda: len(mine.handled) == 5 and is_durable(node))
        await until(lambda: node.settler.truncator.lanes)
        dropped = make_drop(LogState(7, number=3, created=state.created), state, heads)
        await audit.append_log(lane, encode(dropped), position)
        await world.all_gone()
        await audit.close()


async def test_log_counts_although_its_last_message_is_gone() -> None:
    """K10: the other subscription has ended; the owner that removes messages starts again, and settles the rest."""
    async with World() as world:
        mine, theirs = Handler("1"), Handler("3")
        node = await start(world, mine, tuning=AT_ONCE)
        audit = await start(world, theirs, AUDIT, tuning=AT_ONCE)
        await put(world, 10, "lanes")
        await until(lambda: stored(world, "lanes") == {"1", "3"})
        await world.crash(audit)
        await world.put(b"11", id=11)
        await until(lambda: "11" in mine.handled and is_durable(node))
        await world.crash(node)
        again = Handler()
        await start(world, again, tuning=AT_ONCE)
        await until(lambda: stored(world, "lanes") == {"3", "11"})


async def test_idle_owner_removes_what_another_subscription_settles_later() -> None:
    """K10: also where its own watermark is held, and nothing more happens in it."""
    async with World() as world:
        mine = Handler("1")
        node = await start(world, mine, tuning=AT_ONCE)
        await put(world, 10, "lanes")
        await until(lambda: len(mine.handled) == 9 and is_durable(node))
        theirs = Handler()
        await start(world, theirs, AUDIT, tuning=AT_ONCE)
        await until(lambda: stored(world, "lanes") == {"1"})
        assert len(theirs.handled) == 10


async def test_nothing_is_handled_twice_after_takeovers() -> None:
    """K10, L: owners of both subscriptions die while each is stuck at other messages, and the rest is removed."""
    async with World() as world:
        mine, theirs = await hold_some(world, "lanes")
        await until(lambda: stored(world, "lanes") == {"1", "3", "7", "8", "12"})
        for node in [*world.nodes]:
            await world.crash(node)
        again, audit_again = Handler(), Handler()
        await start(world, again, tuning=AT_ONCE)
        await start(world, audit_again, AUDIT, tuning=AT_ONCE)
        await world.all_gone()
        assert ["1", "7", "8"] == sorted(again.handled, key=int)
        assert ["3", "8", "12"] == sorted(audit_again.handled, key=int)
        assert {*mine.handled, *theirs.handled} <= {*map(str, range(1, 21))}


class CountingStore(MemoryStore):
    """Counts what feeds of the delay streams deliver."""

    delivered = 0

    def feed(self, lane: LaneId, start: int, sink: Any, *given: Any, **options: Any) -> Feed:
        def counting_sink(*message: Any) -> None:
            CountingStore.delivered += lane.kind == "later"
            sink(*message)

        return super().feed(lane, start, counting_sink, *given, **options)


class CountingWorld(World):
    def new_store(self, cluster: str = "online") -> MemoryStore:
        CountingStore.delivered = 0
        return CountingStore(self.server, cluster)


async def test_takeover_feeds_no_delayed_message_that_is_settled() -> None:
    """K10: delayed messages that wait for another subscription don't slow a takeover of the first one down."""
    async with CountingWorld() as world:
        audit = world.new_store(AUDIT)
        await audit.open()
        await audit.create_own_streams()
        mine = Handler("150")
        node = await start(world, mine, tuning=AT_ONCE)
        await put(world, 200, "later")
        await until(lambda: len(mine.handled) == 199 and is_durable(node))
        await world.crash(node)
        second = Handler("150")
        node = await start(world, second, tuning=AT_ONCE)
        await until(lambda: CountingStore.delivered == 200)  # the log of a short life doesn't say how far it was
        await world.put(b"201", id=201, due=world.store.now())
        await until(lambda: second.handled == ["201"] and is_durable(node))
        await world.crash(node)
        last = Handler()
        await start(world, last, tuning=AT_ONCE)
        await until(lambda: last.handled == ["150"])
        assert CountingStore.delivered <= 52
        assert len(stored(world, "later")) == 201
        await audit.close()

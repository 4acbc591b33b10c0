"""Pipeline of a put: its limits in their order, and one completion, whatever its state (K6)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.ports import Lost, Receipt, Refused
from evenlane.engine.errors import BacklogFull, NotAcknowledged
from evenlane.engine.producer.no_reply import ReplyTimeouts
from evenlane.engine.producer.pipeline.pending_put import PendingPut, PutState, SinglePut
from evenlane.engine.producer.pipeline.pipeline import PutPipeline
from evenlane.engine.producer.pipeline.router import Router
from evenlane.engine.producer.pipeline.sender import Sender
from evenlane.engine.producer.pipeline.window import PutWindow
from evenlane.engine.producer.put import Put
from tests.support.producer_world import CLUSTER_CONFIG, Topics, accepted
from tests.support.until import until

RECEIPT = Receipt("LANES_e_0", 1, duplicate=False)


def pending(project="acme", topic='{"qps": 5, "max_backlog": 9}'):
    return PendingPut(project, "1", True, f"lanes.e.0.{project}.0.mid", b"", b"body", accepted(topic))


class Limit:
    """A limit that admits at once, later or never."""

    def __init__(self, log, when="at once"):
        self.log, self.when = log, when

    def try_acquire(self, _pending):
        self.log.append("backlog")
        if self.when == "full":
            raise BacklogFull("full")
        return self.when == "at once"

    async def acquire(self, _pending):
        self.log.append("backlog waits")
        await asyncio.sleep(0)
        if self.when == "never":
            raise NotAcknowledged("too late")


class LimitWorld:
    """A pipeline whose window has room for one put. `asked` has the calls of the limit."""

    def __init__(self, backlog="at once", *, room=True, spec='{"qps": 5, "max_backlog": 9}', timeout_s=5.0):
        self.asked, self.store, topics = [], Store(), Topics()
        topics.set("acme", spec)
        replies = ReplyTimeouts(self.store)
        self.window = PutWindow(1, 1 << 20, timeout_s, replies)
        sender = Sender(self.store, self.window, replies, timeout_s=5.0, window_s=5.0, restore=None)
        router = Router("e", topics, CLUSTER_CONFIG, self.store)
        self.pipeline = PutPipeline(router, Limit(self.asked, backlog), None, sender, timeout_s)
        self.first = pending()
        if not room:
            assert self.window.try_acquire(self.first)

    def prepare(self):
        return self.pipeline.prepare(Put("acme", b"body"))


class TestLimits:
    @pytest.mark.parametrize(
        ("backlog", "room", "state"),
        [
            ("at once", True, PutState.ADMITTED),
            ("later", True, PutState.PREPARED),
            ("at once", False, PutState.PREPARED),
        ],
    )
    def test_put_is_admitted_unless_limit_makes_it_wait(self, backlog, room, state):
        world = LimitWorld(backlog, room=room)
        put = world.prepare()
        assert (state, ["backlog"]) == (put.state, world.asked)
        assert world.window.is_empty == (backlog == "later")

    def test_topic_without_backlog_limit_skips_that_limit(self):
        world = LimitWorld(spec='{"qps": 5}')
        assert PutState.ADMITTED is world.prepare().state
        assert [] == world.asked

    def test_full_backlog_refuses_put_at_once(self):
        world = LimitWorld("full")
        with pytest.raises(BacklogFull):
            world.prepare()
        assert world.window.is_empty
        assert [] == world.store.asked

    async def test_put_waits_for_each_limit_in_turn(self):
        world = LimitWorld("later", room=False)
        put = world.prepare()
        admission = asyncio.create_task(world.pipeline.admit(put))
        await until(lambda: world.asked[1:] == ["backlog", "backlog waits"])
        assert not admission.done()
        world.window.release(world.first)
        await admission
        assert PutState.ADMITTED is put.state

    @pytest.mark.parametrize(("backlog", "room"), [("never", True), ("later", False)])
    async def test_put_that_is_not_admitted_completes_without_outcome(self, backlog, room):
        world = LimitWorld(backlog, room=room, timeout_s=0.01)
        put = world.prepare()
        with pytest.raises(NotAcknowledged):
            await world.pipeline.admit(put)
        assert PutState.DONE is put.state
        assert ([], room) == (world.store.asked, world.window.is_empty)


class Store:
    """A store that keeps puts until the test answers them."""

    connected, is_connected, max_payload = True, True, 1 << 20

    def __init__(self):
        self.asked = []
        self.is_there = True

    def put_then(self, subject, _headers, _body, answered):
        if not self.is_there:
            raise Lost("not there")
        self.asked.append((subject, answered))


class PipelineWorld:
    def __init__(self):
        self.store = Store()
        replies = ReplyTimeouts(self.store)
        self.window = PutWindow(100, 1 << 20, 5.0, replies)
        self.sender = Sender(self.store, self.window, replies, timeout_s=5.0, window_s=5.0, restore=None)
        self.sender.open()

    def put(self):
        put = pending()
        assert self.window.try_acquire(put)
        put.state = PutState.ADMITTED
        put.completion = SinglePut()
        self.sender.send(put)
        return put


_EVENTS = st.sampled_from(["put", "put", "receipt", "receipt", "refused", "lost", "dropped", "away", "back"])


@given(events=st.lists(st.tuples(_EVENTS, st.integers(0, 1_000)), max_size=60))
def test_each_put_completes_once_and_releases_its_room(events):
    """K6: by its receipt, a refusal, the end of its caller or of the producer; repeated answers change nothing."""

    async def run():
        world, puts = PipelineWorld(), []
        for event, which in events:
            if event == "put":
                puts.append(world.put())
            elif event in {"away", "back"}:
                world.store.is_there = event == "back"
            elif event == "dropped" and puts:
                world.sender.complete(puts[which % len(puts)], None)
            elif world.store.asked:
                answer = {"receipt": RECEIPT, "refused": Refused("no"), "lost": Lost("gone")}.get(event, RECEIPT)
                world.store.asked[which % len(world.store.asked)][1](answer)
            holding = sum(put.state in {PutState.IN_FLIGHT, PutState.RETRYING} for put in puts)
            assert (holding == 0) == world.window.is_empty
        await world.sender.close()
        assert world.window.is_empty
        assert {PutState.DONE} >= {put.state for put in puts}
        outcomes = [put.completion.outcome for put in puts]
        assert all(
            outcome.exception() is not None or outcome.result() == RECEIPT for outcome in outcomes if outcome.done()
        )

    asyncio.run(run())

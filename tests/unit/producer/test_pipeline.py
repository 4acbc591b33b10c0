"""Pipeline of a put: its limits in their order, and one completion, whatever its state (K6)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.ports import Lost, Receipt, Refused
from evenlane.engine.errors import BacklogFull, NotAcknowledged
from evenlane.engine.producer.no_reply import ReplyTimeouts
from evenlane.engine.producer.pipeline import PutPipeline
from evenlane.engine.producer.put import PendingPut, PutState, SinglePut
from evenlane.engine.producer.sender import Sender
from evenlane.engine.producer.window import PutWindow
from tests.support.producer_world import accepted

RECEIPT = Receipt("LANES_e_0", 1, duplicate=False)


def pending(project="acme", topic='{"qps": 5, "max_backlog": 9}'):
    return PendingPut(project, "1", True, f"lanes.e.0.{project}.0.mid", b"", b"body", 4, accepted(topic))


class Router:
    """Routes nothing: returns the put."""

    def address(self, put):
        return put


class Limit:
    """A limit that admits at once, later or never."""

    def __init__(self, name, log, when="at once"):
        self.name, self.log, self.when = name, log, when

    def try_acquire(self, _pending):
        self.log.append(self.name)
        if self.when == "full":
            raise BacklogFull("full")
        return self.when == "at once"

    async def acquire(self, _pending):
        self.log.append(f"{self.name} waits")
        await asyncio.sleep(0)
        if self.when == "never":
            raise NotAcknowledged("too late")


class Recorder:
    """A sender that records its calls."""

    def __init__(self, window):
        self.window, self.sent, self.completed = window, [], []

    def send(self, put):
        self.sent.append(put)

    def complete(self, put, outcome):
        self.completed.append((put, outcome))


def make_pipeline(backlog="at once", window="at once"):
    log = []
    sender = Recorder(Limit("window", log, window))
    return PutPipeline(Router(), Limit("backlog", log, backlog), None, sender, 5.0), sender, log


class TestLimits:
    @pytest.mark.parametrize(
        ("backlog", "window", "state", "asked"),
        [
            ("at once", "at once", PutState.ADMITTED, ["backlog", "window"]),
            ("later", "at once", PutState.PREPARED, ["backlog"]),
            ("at once", "later", PutState.PREPARED, ["backlog", "window"]),
        ],
    )
    def test_put_is_admitted_unless_limit_makes_it_wait(self, backlog, window, state, asked):
        pipeline, _, log = make_pipeline(backlog, window)
        assert (state, asked) == (pipeline.prepare(pending()).state, log)

    def test_topic_without_backlog_limit_skips_that_limit(self):
        pipeline, _, log = make_pipeline()
        assert PutState.ADMITTED is pipeline.prepare(pending(topic='{"qps": 5}')).state
        assert ["window"] == log

    def test_full_backlog_refuses_put_at_once(self):
        pipeline, sender, log = make_pipeline("full")
        with pytest.raises(BacklogFull):
            pipeline.prepare(pending())
        assert (["backlog"], []) == (log, sender.sent)

    async def test_put_waits_for_each_limit_in_turn(self):
        pipeline, sender, log = make_pipeline("later", "later")
        put = pipeline.prepare(pending())
        await pipeline.admit(put)
        assert ["backlog", "backlog", "backlog waits", "window", "window waits"] == log
        assert (PutState.ADMITTED, []) == (put.state, sender.completed)

    @pytest.mark.parametrize(("backlog", "window"), [("never", "at once"), ("later", "never")])
    async def test_put_that_is_not_admitted_completes_without_outcome(self, backlog, window):
        pipeline, sender, _ = make_pipeline(backlog, window)
        put = pipeline.prepare(pending())
        with pytest.raises(NotAcknowledged):
            await pipeline.admit(put)
        assert ([(put, None)], []) == (sender.completed, sender.sent)


class Store:
    """A store that keeps puts until the test answers them."""

    connected, max_payload = True, 1 << 20

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

"""The record that drops messages of an unowned lane for one subscription (L, K10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.backlog.scan import read_lane_view
from evenlane.engine.admin.backlog.settle_unowned import make_drop, settle
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.lane.settled_set import SettledSet, runs
from evenlane.engine.core.ports import Head, LaneState, LogMoved
from evenlane.engine.core.records.settle_record import SettleRecord, encode
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.memory import MemoryServer, MemoryStore

LANE = LaneId("lanes", 0)
STATE = LaneState("today", 1, 100, 5)


def head(sequence):
    return Head(sequence, 1_000 + sequence, 1, b"")


@given(st.sets(st.integers(12, 60), min_size=1), st.sets(st.integers(61, 100), min_size=1), st.booleans())
def test_record_changes_nothing_but_what_is_settled(before, dropped, drops_the_first):
    """X9, X11: the last owner, its end and its horizon stay as the log says, and so do marks of other messages."""
    dropped |= {11} if drops_the_first else set()
    runs_before, marks = pack_runs(runs(sorted(before)), 10), pack_pairs([(61, 1)], 10)
    owner = SettleRecord(
        2, 7, 3, "today", 60, 1_060, 10, runs_before, marks=marks, horizon=70, clean=False, lease=9, reset=4
    )
    log = fold([encode(owner)])
    record = make_drop(log, STATE, [head(each) for each in sorted(dropped)])
    after = fold([encode(owner), encode(record)])
    expected = SettledSet(10)
    expected.add_sorted(sorted(before | dropped))
    assert [*expected.above()] == [*after.settled.above()]
    assert expected.watermark == after.settled.watermark
    assert (7, 3, 9, 70, False) == (after.epoch, after.number, after.lease, after.horizon, after.clean)
    assert 4 == after.reset
    assert ({} if 61 in dropped else log.marks) == after.marks


def test_record_knows_the_last_message_that_it_drops():
    """L: a stream that loses it, and gives its sequence to another message, is another stream."""
    log = fold([encode(SettleRecord(2, 7, 3, "today", 60, 1_060, 10, b""))])
    record = make_drop(log, STATE, [head(20), head(90)])
    assert (90, 1_090) == (record.high, record.high_at)
    record = make_drop(log, STATE, [head(20)])
    assert (60, 1_060) == (record.high, record.high_at)


@pytest.mark.parametrize(("first", "clean"), [(1, True), (5, False)])
def test_lane_that_nobody_has_owned_gets_a_first_record(first, clean):
    """X11: if messages were removed, somebody has owned it, and its log is lost."""
    record = make_drop(fold([]), STATE._replace(first=first), [head(7)])
    assert (1, 0, "today", clean) == (record.epoch, record.number, record.created, record.clean)
    assert [(7, 7)] == [*fold([encode(record)]).settled.above()]


async def test_node_that_takes_the_partition_over_is_never_overwritten():
    """E: the append is refused if the log has moved."""
    server = MemoryServer(clock=lambda: 1)
    store = MemoryStore(server, "online")
    await store.open()
    await store.prepare([LANE])
    for _ in range(3):
        await store.put("lanes.online.0.acme.0.mid", b"", b"x")
    view = await read_lane_view(store, LANE)
    [first, *_] = await store.heads(LANE, "lanes.online.0.acme.0.mid", 1, 10)

    class Overtaken(MemoryStore):
        async def state(self, lane):
            await store.append_log(LANE, encode(SettleRecord(2, 9, 1, view.state.created, 3, view.state.at, 0, b"")), 0)
            return await super().state(lane)

    other = Overtaken(server, "online")
    await other.open()
    with pytest.raises(LogMoved):
        await settle(other, view, [first])
    assert 0 == (await read_lane_view(store, LANE)).last_settled
    await settle(store, view, [first])
    assert 1 == (await read_lane_view(store, LANE)).last_settled
    for each in (view._replace(state=view.state._replace(created="yesterday")), view._replace(state=STATE)):
        with pytest.raises(EvenlaneError, match="the stream of lanes 0 was replaced meanwhile"):
            await settle(store, each, [first])

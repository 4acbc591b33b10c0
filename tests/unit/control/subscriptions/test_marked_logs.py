"""A takeover after the record that keeps older releases out is the same as without it (K10)."""

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.control.subscriptions.first_records import make_mark, mark_logs
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.records.settle_record import SHARED_VERSION, UNOWNED_EPOCH, SettleRecord
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs
from evenlane.engine.node.partitions.takeover import recover
from tests.support.subscription_world import ENV, SubscriptionWorld

LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)
EPOCH = 1_000


def record(number, watermark, runs=(), marks=(), **fields):
    """A record of the stream's last owner, which has seen 9 messages."""
    values = {"epoch": 7, "number": number, "high": 9, "version": 1, "created": "", "high_at": 0} | fields
    return SettleRecord(
        **values, watermark=watermark, runs=pack_runs(runs, watermark), marks=pack_pairs(marks, watermark)
    )


MARK = 3 << 2  # three attempts
LOGS = {
    "never owned": [],
    "clean": [record(1, 0, checkpoint=True), record(2, 5, [(7, 8)], [(6, MARK)], clean=True, lease=4)],
    "died": [record(1, 2, [(4, 5)], checkpoint=True, clean=False), record(2, 2, [(7, 7)], clean=False, horizon=6)],
    "older release": [record(1, 3), record(2, 4, [(6, 6)], [(8, MARK)])],
    "marks removed": [record(1, 0, [], [(6, MARK), (8, MARK)], clean=False), record(2, 5, [], [(6, 0)], clean=False)],
    "clean with a horizon": [record(2, 5, [(8, 8)], clean=True, horizon=7)],
    "several epochs": [record(9, 1, [(3, 3)], epoch=5, clean=True), record(1, 2, epoch=8, checkpoint=True, horizon=9)],
    "another stream": [record(3, 5, created="memory-0", clean=True)],
    "unreadable": [None],
    "unreadable end": [record(2, 5, [(7, 8)], clean=True), None],
    "unreadable middle": [record(2, 5, [(7, 8)], clean=True), None, record(3, 6, clean=True)],
}


async def filled(log, purged, lane):
    world = SubscriptionWorld()
    await world.open()
    await world.put(lane, 9)
    await world.shared.purge(lane, purged + 1)
    state = await world.shared.state(lane)
    for each in log:
        if each is None:
            _, position = await world.shared.read_log(lane)
            await world.shared.append_log(lane, b"\xc1", position)
        else:
            created = each.created or state.created
            await world.append(lane, SettleRecord(**{**_fields(each), "created": created, "high_at": state.at}))
    return world


def _fields(each):
    return {name: getattr(each, name) for name in each.__struct_fields__}


async def taken_over(world, lane_id):
    """What the next owner knows, and what its first record says; of times, whether they are the last message's."""
    lane = Lane(lane_id, EPOCH)

    async def busy():
        return []

    await recover(world.shared, lane, busy)
    last = settle_record.decode((await world.shared.read_log(lane_id))[0][-1].body)
    settled = (lane.settled.watermark, [*lane.settled.above()])
    removal = (lane.removal.purged, lane.removal.durable_watermark, lane.removal.choose_erasable(100))
    at = (await world.shared.state(lane_id)).at
    said = _fields(last) | {"high_at": last.high_at == at}
    return settled, lane.horizon, lane.high, lane.high_at == at, removal, said


@pytest.mark.parametrize("lane", [LANE, LATER], ids=["lane", "delay stream"])
@pytest.mark.parametrize("purged", [0, 4])
@pytest.mark.parametrize("log", LOGS)
async def test_takeover_is_the_same(log, purged, lane):
    """K10: same settled set, marks, horizon and end, so nothing is handled twice because of a creation."""
    plain, marked = [await filled(LOGS[log], purged, lane) for _ in range(2)]
    assert not await mark_logs(marked.shared, [lane.partition])
    assert 2 == settle_record.decode((await marked.shared.read_log(lane))[0][-1].body).version
    before, after = [await taken_over(world, lane) for world in (plain, marked)]
    assert before == after
    for world in (plain, marked):
        await world.close()


@pytest.mark.parametrize("purged", [0, 4])
@pytest.mark.parametrize("log", LOGS)
async def test_takeover_after_more_puts_is_the_same(log, purged):
    """K10: messages that are put between the creation and the takeover were never in flight."""
    plain, marked = [await filled(LOGS[log], purged, LANE) for _ in range(2)]
    await mark_logs(marked.shared, [LANE.partition])
    for world in (plain, marked):
        await world.put(LANE, 3)
    before, after = [await taken_over(world, LANE) for world in (plain, marked)]
    assert before == after
    for world in (plain, marked):
        await world.close()


@pytest.mark.parametrize("log", [log for log in LOGS if LOGS[log] and LOGS[log] != [None]])
def test_log_says_the_same(log):
    """K10: also to a reader that looks for the last owner, or for the number of its last append."""
    raw = [b"\xc1" if each is None else settle_record.encode(_named(each)) for each in LOGS[log]]
    mark = make_mark(raw, LaneState("s", 1, 12, 5))
    assert mark is not None
    assert (b"", b"", False) == (mark.runs, mark.marks, mark.checkpoint)
    assert _folded(raw) == _folded([*raw, settle_record.encode(mark)])


def _named(each):
    return SettleRecord(**{**_fields(each), "created": each.created or "s", "high_at": 3})


def _folded(raw):
    found = vars(fold(raw))
    settled = found.pop("settled")
    return found, settled.watermark, [*settled.above()]


def test_log_of_version_2_is_left():
    """K10: the record is written once."""
    state = LaneState("s", 1, 9, 5)
    first = make_mark([], state)
    assert first is not None
    assert make_mark([settle_record.encode(first)], state) is None


async def test_log_that_another_process_writes_is_named(world):
    """K10: its owner key must be read again."""

    class Overtaken(type(world.shared)):
        async def state(self, lane):
            await world.append(lane, record(1, 0, epoch=12, created="memory-1"))
            return await super().state(lane)

    store = Overtaken(world.server, ENV)
    await store.open()
    assert {1} == await mark_logs(store, [1])
    await store.close()


def test_release_before_doesnt_skip_the_mark_of_a_lane_that_nobody_has_owned():
    """L, K10: that release raises UnknownVersion only for a record whose epoch is above 0."""
    mark = make_mark([], LaneState("s", 1, 0, 0))
    assert mark is not None
    assert (SHARED_VERSION, UNOWNED_EPOCH) == (mark.version, mark.epoch)
    assert UNOWNED_EPOCH > 0

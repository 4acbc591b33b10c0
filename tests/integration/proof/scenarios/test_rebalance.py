"""P13, Z1, D: the scenario `rebalance`: its figures from given records, and a small run on real servers."""

import asyncio

import nats
import pytest

from evenlane.engine.cli.bench.table import show
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.cluster.history import OwnershipHistory, Reign
from evenlane.engine.proof.cluster.node import CatchUpEnd, caught_up
from evenlane.engine.proof.cluster.records import HandlerRecord, HandlerRecords, pack_record, unpack_records
from evenlane.engine.proof.figures import begins, count_begun_again, spread, waits
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.rebalance import figures
from evenlane.engine.proof.scenarios.rebalance.figures import Move
from evenlane.engine.proof.scenarios.rebalance.load import RebalanceProjects, RebalanceSize, share_out
from evenlane.engine.proof.scenarios.rebalance.scenario import RebalanceScenario
from evenlane.ring.coordination.ports import Event, KeyValue, Listing
from evenlane.ring.hashing import partition_of

MS, SECOND = 10**6, 10**9
OLD, NEW = 7, 9  # epochs
MOVE = Move(partition=0, old=OLD, new=NEW, released=200 * MS, taken=250 * MS)
SMALL = RebalanceSize(
    projects=30, partitions=12, rate=300, waiting=2_000, elsewhere=200, backlog=12_000, full=6_000, lease_ttl=2,
    held_s=1.5,
)  # fmt: skip
MOVES = ("join", "leave", "kill -9")
WAITS_OF_MOVE = ("where_moved", "beside_backlog")


def record(at_ms, sequence=1, *, epoch=OLD, partition=0, node="a", began=True, held=False, put_ms=0):
    return HandlerRecord(
        int(at_ms * MS), int(put_ms * MS), sequence, epoch, partition, 1, 0, began, "lanes", held, "paced-1", node
    )


# ---- moved


def test_moved_partitions_have_another_planned_node():
    """E6: a partition without a previous owner has moved, too."""
    assert {1, 2} == figures.find_moved({0: "a", 1: "a"}, {0: "a", 1: "b", 2: "a"})


def test_move_joins_consecutive_reigns():
    """Only moves whose new key is in the span; a partition without a previous owner hasn't moved."""
    reigns = [Reign(0, 1, "a", 0, 10), Reign(1, 2, "a", 0), Reign(0, 3, "b", 15, 90), Reign(0, 4, "c", 95)]
    assert [Move(0, 1, 3, 10, 15)] == figures.moves(reigns, 5, 95)
    assert [Move(0, 3, 4, 90, 95)] == figures.moves(reigns, 95, 96)


# ---- pause


def test_pause_is_between_last_old_and_first_new_start():
    """Z1: starts of other partitions or epochs don't count."""
    begun = begins([
        record(400, 4, epoch=NEW), record(300, 3, epoch=NEW), record(100, 1), record(140, 2),
        record(145, 2, began=False), record(200, 9, partition=1), record(10, 8, epoch=5),
    ])  # fmt: skip
    assert {0: 160 * MS} == figures.pauses(begun, [MOVE])


def test_pause_needs_starts_on_both_sides():
    assert {} == figures.pauses(begins([record(100), record(150, 2)]), [MOVE])
    assert {} == figures.pauses(begins([record(300, epoch=NEW)]), [MOVE])


def test_pause_is_sum_of_its_stages():
    begun = begins([record(140), record(300, 2, epoch=NEW), record(350, 3, epoch=NEW)])
    assert {"to_release_p99_ms": 60, "to_take_p99_ms": 50, "to_start_p99_ms": 50} == figures.stages(
        begun, begun, [MOVE]
    )
    assert {0: (60 + 50 + 50) * MS} == figures.pauses(begun, [MOVE])


def test_between_is_median_gap_of_same_partition():
    begun = begins([record(0), record(40, 2), record(50, 3, partition=1), record(90, 4), record(900, 5)])
    assert 45 == figures.measure_between(begun, 100 * MS)
    assert figures.measure_between(begun, 0) is None


# ---- waits


def test_wait_is_from_put_in_span_to_first_start():
    """`put` is by the wall clock, which is `offset` behind."""
    begun = begins([
        record(1_130, 1, put_ms=100), record(1_500, 1, put_ms=100, epoch=NEW), record(1_210, 2, put_ms=200),
        record(1_150, 3, put_ms=99), record(1_150, 4, put_ms=120, partition=1), record(1_110, 5, put_ms=105),
    ])  # fmt: skip
    first, second = ([each for each in begun if each.partition == partition] for partition in (0, 1))
    assert [5, 30] == waits(first, 1_100 * MS, 1_200 * MS, 1_000 * MS)
    assert [30] == waits(second, 1_100 * MS, 1_200 * MS, 1_000 * MS)


def test_percentiles_of_nothing_are_none():
    assert {"wait_p50_ms": None, "wait_p99_ms": None, "wait_max_ms": None} == spread([], "wait")
    assert {"wait_p50_ms": 1, "wait_p99_ms": 3, "wait_max_ms": 3} == spread([1, 1, 3], "wait")


# ---- duplicates


def test_each_repeated_start_counts():
    """D: the same sequence in another partition is another message; ends don't count."""
    records = [record(1), record(2, began=False), record(3, epoch=NEW), record(4, node="b"), record(5, partition=1)]
    assert 2 == count_begun_again(begins(records))


def test_possible_repeats_were_in_flight_or_ended_within_interval():
    """D's bound: only messages of the dead node, before its death."""
    records = [
        record(0, 1), record(10, 1, began=False),  # settled long before
        record(800, 2), record(950, 2, began=False),  # ended within the interval
        record(900, 3), record(905, 4),  # in flight
        record(900, 5, node="b"), record(1_100, 6),
    ]  # fmt: skip
    assert 3 == figures.count_repeatable(records, "a", 1_000 * MS)


# ---- held


def test_held_message_counts_if_it_runs_across_move():
    """Z1: other starts of its partition meanwhile show that only this message was held."""
    records = [
        record(100, 1, held=True), record(600, 1, held=True, began=False),
        record(300, 2, epoch=NEW), record(400, 3, epoch=NEW, partition=1), record(700, 4, epoch=NEW),
    ]  # fmt: skip
    assert {"held": 1, "held_begun_again": 0, "begun_beside_held": 1} == figures.count_held(records, [MOVE])


def test_repeated_start_of_held_message_counts():
    records = [record(100, 1, held=True), record(260, 1, held=True, epoch=NEW), record(600, 1, held=True, began=False)]
    assert 1 == figures.count_held(records, [MOVE])["held_begun_again"]


def test_held_message_that_ended_before_move_does_not_count():
    records = [record(100, 1, held=True), record(220, 1, held=True, began=False), record(300, 2, epoch=NEW)]
    assert {"held": 0, "held_begun_again": 0, "begun_beside_held": 0} == figures.count_held(records, [MOVE])


# ---- after a crash


def test_recovery_counts_from_deletion_of_owner_key():
    begun = begins([record(100), record(700, 2, epoch=NEW), record(800, 3, epoch=NEW)])
    other = Move(partition=5, old=1, new=2, released=0, taken=1)
    assert [0.5] == figures.measure_pauses(begun, [MOVE, other])


def test_catch_up_is_from_first_new_key_to_last_backlog():
    """A catch-up before the new owner, or elsewhere, doesn't count."""
    moves = [MOVE, Move(1, OLD, NEW, 200 * MS, 300 * MS)]
    reported = [
        CatchUpEnd(100 * MS, 0, 9_999), CatchUpEnd(2_250 * MS, 0, 300_000), CatchUpEnd(1_000 * MS, 1, 100_000),
        CatchUpEnd(5_000 * MS, 7, 5),
    ]  # fmt: skip
    assert {"fed_again": 400_000, "caught_up_s": 2, "caught_up_s_a_million": 5} == figures.measure_feeding(
        moves, reported
    )
    assert figures.measure_feeding(moves, reported[:1])["caught_up_s_a_million"] is None


# ---- records


def test_record_is_decoded_as_encoded():
    made = record(12.5, 2**40, held=True, put_ms=3)._replace(project="full-1234", band=2, kind="later", attempt=3)
    again = made._replace(began=False, held=False, kind="lanes", epoch=2**50, partition=65_535, attempt=1)
    assert [made, again] == unpack_records(pack_record(made) + pack_record(again), "a")


def test_ledger_reads_new_complete_records(tmp_path):
    first, second = record(1), record(2, 2)
    file = tmp_path / "a"
    file.write_bytes(pack_record(first) + pack_record(second)[:10])
    ledger = HandlerRecords(tmp_path)
    assert [first] == ledger.read()
    file.write_bytes(pack_record(first) + pack_record(second))
    assert ([second], [first, second]) == (ledger.read(), ledger.records)


def test_caught_up_partitions_are_read_from_log():
    lines = [
        b"node-a: no JSON",
        b'{"timestamp": "1970-01-01T00:00:02.500000Z", "event": "owned", "partition": 3}',
        b'{"timestamp": "1970-01-01T00:00:02.500000Z", "event": "caught up", "partition": 3, "messages": 7}',
    ]
    assert [CatchUpEnd(3 * SECOND, 3, 7)] == list(caught_up(lines, SECOND // 2))


def owner(partition, revision, name, mod=None):
    key = f"/evenlane/bench/owners/{partition}"
    return KeyValue(key, b'{"id":"%s"}' % name.encode(), revision, mod or revision, 1)


def test_reigns_differ_by_create_revision():
    """A key that is put again is the same reign; a recreated one is another, also if the deletion was not seen."""
    history = OwnershipHistory("127.0.0.1:1", "bench")
    history._take(Listing(5, (owner(0, 3, "a"),)), 10)
    history._take(Event("put", owner(0, 3, "a", 6)), 20)
    history._take(Listing(9, (owner(0, 8, "b"),)), 30)
    history._take(Event("delete", KeyValue("/evenlane/bench/owners/0", b"", 0, 10, 0)), 40)
    assert [Reign(0, 3, "a", 10, 30), Reign(0, 8, "b", 30, 40)] == history.reigns
    assert {} == history.owners


async def test_wait_ends_with_end_of_node():
    history = OwnershipHistory("127.0.0.1:1", "bench")
    waiting = asyncio.create_task(history.wait_until(lambda: False, 30, "nothing"))
    await asyncio.sleep(0)
    history.break_off("node-a ended with status 1")
    history.break_off("node-b ended, too")
    with pytest.raises(EvenlaneError, match="the scenario was aborted: node-a ended with status 1"):
        await waiting
    with pytest.raises(EvenlaneError, match=r"waited 0 s for nothing without success"):
        await OwnershipHistory("127.0.0.1:1", "bench").wait_until(lambda: False, 0, "nothing")


# ---- the load


def test_steady_loads_have_distinct_ids_and_reach_all_queues():
    """An id is made of project and number, and the server drops repeated ids."""
    projects = RebalanceProjects(SMALL)
    first, second = (projects.steady(1, 2.0, turn) for turn in (0, 1))
    ids = [{(load.tenant[n], n) for n in range(len(load))} for load in (first, second)]
    assert set() == ids[0] & ids[1]
    assert ({(t, b) for t in range(30) for b in range(3)}, 600) == (
        set(zip(first.tenant, first.band, strict=True)),
        len(first),
    )


def test_default_size_is_as_documented():
    """scenarios.md: 3,000 queues, 2,000 msg/s; 100,000 waiting messages, and a million to be read again."""
    size = RebalanceSize()
    queues = size.projects * len(RebalanceProjects(SMALL).cluster_config.priorities)
    assert (3_000, 2_000, 100_000, 1_000_000, 5) == (queues, size.rate, size.waiting, size.backlog, size.held_s)


def test_backlog_is_in_intended_partitions():
    projects = RebalanceProjects(SMALL)
    assert list(range(12)) == [partition_of(each.name, 0, each.topic.spread, 12, "hashed") for each in projects.deep]
    [load] = projects.make_waiting(projects.full, {3: 2, 5: 1})
    assert ([0, 0, 1], [projects.full[3], projects.full[5]]) == (list(load.tenant), list(load.tenants))
    first, second = projects.make_waiting(projects.full, {3: 60_000, 5: 60_000, 7: 4})
    assert ((120_000, {0, 1}), (4, [0, 0, 0, 0])) == (
        (len(first), set(first.tenant)),
        (len(second), list(second.tenant)),
    )


def test_backlog_is_shared_out_evenly():
    assert {4: 34, 7: 33, 9: 33} == share_out(100, 30, [4, 7, 9, 11])
    assert {4: 10} == share_out(10, 30, [4, 7])


# ---- whole runs


def test_placement_passes_and_control_strategies_fail():
    """E6, C2."""
    report = RebalanceScenario().simulate(1, 1, silent)
    assert [] == [(bar.name, bar.value) for bar in report.bars if not bar.is_met]
    assert {"product", "control"} == {bar.arm for bar in report.bars}


@pytest.mark.real
async def test_small_run_yields_all_figures(url, capsys):
    """Z1, D, L: a join, a leave and a kill -9 of real processes. No bars on times: they need a quiet machine."""
    report = await RebalanceScenario(SMALL).run_on_broker(url, 1, 1, silent)
    client = await nats.connect(url)
    assert [] == await client.jetstream().streams_info()
    await client.close()
    arms = report.arms
    missing = {(name, key) for name, figures in arms.items() for key, value in figures.items() if value is None}
    # (perhaps no message was put there during the move)
    unmeasured = {(name, of) for name in ("join", "leave") for of in WAITS_OF_MOVE if not arms[name][f"waited_{of}"]}
    unmeasured |= {(name, "elsewhere") for name in MOVES if arms[name]["wait_elsewhere_max_ms"] is None}
    expected = {(name, f"wait_{of}_{figure}_ms") for name, of in unmeasured for figure in ("p50", "p99", "max")}
    assert missing == expected | {(name, "elsewhere_over_before") for name, of in unmeasured if of == "elsewhere"}
    assert any(arms[name]["wait_elsewhere_max_ms"] for name in MOVES)
    assert len(unmeasured) == sum(bar.value is None for bar in report.bars)
    for name in ("join", "leave"):
        reported = ("begun_again", "held", "held_begun_again", "generations")
        assert (0, 1, 0, 1) == tuple(arms[name][key] for key in reported)
        assert arms[name]["begun_beside_held"] > 0
    assert arms["kill -9"]["fed_again"] > 0.9 * SMALL.backlog  # some messages were handled before it was killed
    assert 0 == arms["kill -9"]["never_handled"] < arms["kill -9"]["put"]
    show(report, RebalanceScenario.about)
    assert "pause p99 ms" in capsys.readouterr().out

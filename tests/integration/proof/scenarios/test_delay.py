"""K1, K2, X5: the scenario `delay`: its figures from given records, and a small run on real servers."""

import pytest

from evenlane.engine.proof.cluster.records import HandlerRecord, HandlerRecords, pack_record
from evenlane.engine.proof.figures import begins, count_begun_again, count_most_within
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.delay.load import BURST, FAR, FREE, PACED, TIMED, DelayProjects, DelaySize
from evenlane.engine.proof.scenarios.delay.run import early, lateness, rate
from evenlane.engine.proof.scenarios.delay.scenario import DelayScenario, by_heap, by_wheel

MS, SECOND = 10**6, 10**9
OFFSET = -5_000 * SECOND  # the machine has been up for less than since 1970
SMALL = DelaySize(
    waiting=3_000, soon=1_000, far=5, timed=5, paced=5, partitions=8, timed_rate=50, paced_rate=50, burst=100,
    burst_qps=20, alone_s=2, steady_s=6, again_s=2, timed_s=20, most_s=60, lease_ttl=2,
)  # fmt: skip


def record(project, at_ms, *, due_ms=0, put_ms=0, sequence=1, began=True):
    """Times in ms since boot."""
    due = due_ms * MS - OFFSET if due_ms else 0
    put = put_ms * MS - OFFSET
    return HandlerRecord(at_ms * MS, put, sequence, 1, 0, 1, 1, began, "later", False, project, "a", due)


def test_lateness_is_start_minus_due_time():
    """K1: sorted; an early start is below 0; other projects, and ends, don't count."""
    records = [
        record("timed-1", 130, due_ms=100), record("timed-1", 115, due_ms=110), record("timed-1", 190, due_ms=200),
        record("timed-1", 400, due_ms=300), record("far-1", 150, due_ms=120),
        record("timed-1", 131, due_ms=100, began=False),
    ]  # fmt: skip
    assert [-10.0, 5.0, 30.0] == lateness(records, 100 * MS, 300 * MS, OFFSET)
    assert 1 == early(records, OFFSET)


def test_rate_and_most_starts_of_burst_in_any_second():
    """X5."""
    records = [record(BURST, at) for at in (0, 500, 999, 1_400, 3_000)]
    assert 3 == count_most_within(each.at for each in begins(records, BURST))
    assert 2.0 == rate(records, BURST, 0, 2 * SECOND)


def test_repeated_starts_and_handled_messages_are_counted(tmp_path):
    """D, L: handled messages count once, by kind of project."""
    records = [
        record("timed-1", 1), record("timed-1", 2),
        record("timed-1", 3, began=False), record("timed-1", 4, began=False),
        record(BURST, 1, sequence=2), record(BURST, 2, sequence=2, began=False),
    ]  # fmt: skip
    (tmp_path / "a").write_bytes(b"".join(map(pack_record, records)))
    ledger = HandlerRecords(tmp_path)
    ledger.read()
    assert 1 == count_begun_again(ledger.records)
    assert {"timed": 1, "burst": 1} == {kind: len(messages) for kind, messages in ledger.handled.items()}


def test_load_has_planned_due_times():
    """Some within the hour, the rest up to months ahead; the same seed gives the same load."""
    projects = DelayProjects(SMALL)
    dues = [put.due for put in projects.make_waiting(1, 0)]
    assert dues == [put.due for put in projects.make_waiting(1, 0)]
    assert SMALL.soon == sum(due / SECOND < SMALL.soon_s[1] for due in dues)
    assert min(dues) / SECOND >= SMALL.soon_s[0]
    assert all(SMALL.later_s[0] <= due / SECOND + 1 and due / SECOND <= SMALL.later_s[1] for due in dues[SMALL.soon :])
    assert [7, 7 + SECOND // 50] == [put.due for put in projects.make_coming_due(7, 0.03)]
    kinds = {each.name.partition("-")[0] for each in projects.all}
    assert {FAR, TIMED, PACED, BURST, FREE} == kinds


def test_delay_index_is_exact_and_control_is_not():
    """K1: for the same messages."""
    heap, wheel = by_heap(3, silent, 2_000), by_wheel(3, 2_000)
    assert heap["released"] == wheel["released"] == 2_000
    assert 0 <= heap["lateness_max_ms"] <= 10
    assert 0 == heap["early"] == wheel["early"]
    assert wheel["lateness_p99_ms"] > 900


@pytest.mark.full
@pytest.mark.real
async def test_small_run_loses_and_repeats_nothing(url):
    """No message is early, repeated or lost through a restart and a handoff. No bars on times here."""
    report = await DelayScenario(SMALL).run_on_broker(url, 1, 1, silent)
    whole = report.arms["whole run"]
    assert (0, 0, 0) == (whole["early"], whole["handled_twice"], whole["never_handled"])
    assert {"put_timed": 1_100, "put_burst": 100, "put_free": 100} == {
        key: whole[key] for key in ("put_timed", "put_burst", "put_free")
    }
    assert report.arms["a million wait"]["burst_most_in_1_s"] <= 2 * SMALL.burst_qps
    assert all(
        report.arms[name]["came_due"] for name in ("nothing waits", "a million wait", "restart", "after hand-over")
    )

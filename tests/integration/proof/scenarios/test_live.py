"""X4: the scenario `live`: its figures from given records, the control's polls, and a small run on real servers."""

import asyncio

import pytest

from evenlane.engine.cli.bench.table import show
from evenlane.engine.proof.baselines.polling import PollingWatch
from evenlane.engine.proof.cluster.history import Reign
from evenlane.engine.proof.cluster.records import HandlerRecord
from evenlane.engine.proof.scenario import silent
from evenlane.engine.proof.scenarios.live import figures
from evenlane.engine.proof.scenarios.live.edits import Edit
from evenlane.engine.proof.scenarios.live.figures import Latency, Owners, Rules
from evenlane.engine.proof.scenarios.live.load import AGEING, DELETE, HIGH, LOW, TOGGLES, LiveProjects, LiveSize
from evenlane.engine.proof.scenarios.live.scenario import LiveScenario
from evenlane.ring.coordination.ports import DeleteKey, Listing, PutKey, Unavailable

MS, SECOND = 10**6, 10**9
SMALL = LiveSize(
    topics=1, groups=20, crowd=10, partitions=12, rate=100, slots=8, every_s=0.2, steady_s=3, storm_s=0.5, after_s=1.5,
    polled_s=11, least=0.05, lease_ttl=2,
)  # fmt: skip


def record(at_ms, *, began=True, node="a", band=HIGH, project="t", sequence=1):
    return HandlerRecord(int(at_ms * MS), 0, sequence, 1, 0, 1, band, began, "lanes", False, project, node)


def starts(*at_ms, node="a"):
    return {("t", node): [int(at * MS) for at in at_ms]}


def edit(change="pause", at_ms=1_000, until_ms=2_000):
    return Edit("t", change, int(at_ms * MS), int(at_ms * MS), 7, int(until_ms * MS))


# ---- marks


def test_starts_are_sorted_per_project_and_node():
    records = [record(3), record(1), record(2, node="b"), record(5, began=False), record(4, project="u")]
    assert {("t", "a"): [MS, 3 * MS], ("t", "b"): [2 * MS], ("u", "a"): [4 * MS]} == figures.starts(records)
    assert {} == figures.starts(records, lambda each: each.band == LOW)


def test_close_starts_end_a_dense_row():
    of = starts(0, 10, 30, 35, 39, 60)
    assert starts(35, 39) == figures.find_close_starts(of, 10 * MS)
    assert starts(39) == figures.find_close_starts(of, 10 * MS, 3)


def test_overlapping_start_is_during_another_on_same_node():
    """A start at the end of another one doesn't overlap it."""
    records = [
        record(0), record(5, node="b"), record(10, began=False), record(10), record(12), record(13, project="u"),
        record(20, began=False), record(21, began=False), record(30),
    ]  # fmt: skip
    assert starts(12) == figures.find_overlaps(records)


# ---- judged nodes


def test_owner_holds_partition_throughout_span():
    """Z1: not one that held it for a part of the span, nor one that was killed meanwhile."""
    reigns = [Reign(0, 1, "a", 0), Reign(1, 2, "b", 0, 150), Reign(1, 3, "c", 160), Reign(2, 4, "d", 0)]
    owners = Owners(reigns, {"d": 190})
    assert {"a"} == owners.throughout({0, 1, 2}, 100, 200)
    assert {"a", "b", "d"} == owners.throughout({0, 1, 2}, 100, 150)
    assert {"c"} == owners.throughout({1}, 160, 10**6)


# ---- latencies


def test_latency_of_pause_is_last_start():
    of = starts(900, 1_030, 1_200, 2_100) | starts(990, node="b") | starts(1_900, node="late") | starts(1_100, node="x")
    seen = figures.measure_until_last(edit(), of, {"a", "b"}, 1_000 * MS)
    assert {("a", 200), ("b", 0)} == {(each.node, each.ns / MS) for each in seen if each.node != "late"}


def test_late_start_under_old_rule_counts_for_any_node():
    of = starts(2_100)
    assert [Latency(edit(until_ms=3_000), "a", 1_100 * MS)] == figures.measure_until_last(
        edit(until_ms=3_000), of, set(), 1_000 * MS
    )
    assert [] == figures.measure_until_last(edit(until_ms=3_000), of, set(), 1_000 * MS, strict=False)


def test_latency_of_resume_is_first_start_or_missed():
    """Nodes without partitions of the topic need not start anything."""
    of = starts(900, 1_300, 1_400) | starts(2_050, node="b") | starts(1_100, node="x")
    found = figures.measure_until_first(edit("resume"), of, {"a", "b", "c"}, 1_000 * MS)
    assert [("a", 300, False), ("b", 1_000, True), ("c", 1_000, True)] == [
        (each.node, each.ns / MS, each.missed) for each in found
    ]


@pytest.mark.parametrize(
    ("change", "records", "expected_ms"),
    [
        ("quota down", [record(at) for at in (900, 1_000, 1_050, 1_300, 1_700)], 50),
        ("quota up", [record(at) for at in (500, 900, 1_100, 1_200, 1_230)], 200),
        ("concurrency down", [record(990), record(1_010), record(1_020, began=False), record(1_030, began=False)], 10),
        ("ageing on", [record(1_010), record(1_040, band=LOW)], 40),
        ("ageing off", [record(1_010, band=LOW), record(1_040)], 10),
        ("weight up", [record(at) for at in (400, 1_100, 1_150, 1_190)], 190),
        ("delete", [record(990), record(1_007)], 7),
        ("put back", [record(1_011)], 11),
    ],
)
def test_latency_is_first_evidence_of_new_rule(change, records, expected_ms):
    """X4: each kind of change has its own evidence."""
    [seen] = Rules(records).latencies(edit(change), {"a"}, 1_000 * MS)
    assert (expected_ms, False) == (seen.ns / MS, seen.missed)


# ---- after a change


def test_silence_is_longest_gap():
    assert (7, 0) == (figures.longest_gap([1, 3, 10]), figures.longest_gap([1]))


def test_counts_are_over_all_nodes():
    of = starts(1, 2, 3) | starts(2, node="b") | {("u", "a"): [2 * MS]}
    assert (3, [MS, 2 * MS, 2 * MS, 3 * MS]) == (figures.count(of, "t", 2 * MS, 4 * MS), figures.merge_marks(of, "t"))


# ---- the load


def test_each_kind_of_edit_has_topics_and_can_be_undone():
    projects = LiveProjects(SMALL)
    assert [toggle.kind for toggle in TOGGLES] == [each.toggle.kind for each in projects.edited]
    for each in projects.edited:
        there, back = each.op(changed=True), each.op(changed=False)
        assert isinstance(there, DeleteKey) is (each.toggle.kind == DELETE)
        assert isinstance(back, PutKey)
        assert there.key == back.key


def test_waiting_messages_have_distinct_ids():
    """An id is made of project and number in the load, and the server drops repeated ids."""
    projects = LiveProjects(LiveSize())
    loads = list(projects.make_waiting())
    in_loads = [{load.tenants[number].name for number in load.tenant} for load in loads]
    assert sum(map(len, in_loads)) == len(set().union(*in_loads)) == len(projects.edited) + 2
    bands = {(load.tenants[t].name, b) for load in loads for t, b in zip(load.tenant, load.band, strict=True)}
    assert {f"{AGEING}-0", f"{AGEING}-1"} == {name for name, band in bands if band == LOW}


# ---- the control


class Lists:
    """A coordination that fails once."""

    def __init__(self):
        self.asked = 0

    async def list(self, prefix):
        self.asked += 1
        if self.asked == 2:
            raise Unavailable("not now")
        return Listing(self.asked, ())


async def test_polls_survive_failed_list_and_end_when_closed():
    lists = Lists()
    polls = PollingWatch(lists, "/evenlane/x/accepted/", 0.01)
    assert [1, 3] == [(await anext(polls)).revision for _ in range(2)]
    slow = PollingWatch(lists, "/evenlane/x/accepted/")
    await anext(slow)
    waiting = asyncio.create_task(anext(slow))
    await asyncio.sleep(0)
    await slow.aclose()
    with pytest.raises(StopAsyncIteration):
        await waiting


# ---- whole runs


def test_simulated_scheduler_acts_at_once_and_control_does_not():
    """X4: the next decision is under the new rule; a control that waits for the next message fails. A raised weight
    applies to earlier charges, too: otherwise it takes 180 ms here, and seconds with a lower one.
    """
    report = LiveScenario().simulate(1, 1, silent)
    assert report.arms["product"]["weight up_ms"] < 100
    assert [] == [(bar.name, bar.value) for bar in report.bars if not bar.is_met]
    assert {"product", "control"} == {bar.arm for bar in report.bars}
    assert "can't be simulated" in report.notes[0]


@pytest.mark.full
@pytest.mark.real
async def test_small_run_yields_all_figures(url, capsys):
    """No bars on times: they need a quiet machine."""
    report = await LiveScenario(SMALL).run_on_broker(url, 1, 1, silent)
    arms = report.arms
    assert ["steady", "storm", "join", "leave", "kill -9", "leader killed", "polled"] == list(arms)
    for name, of in arms.items():
        assert min(of["edits"], of["judged"]) > 0, name
    assert [] == [key for key, value in arms["steady"].items() if value is None]
    assert 0 < arms["join"]["moved"] <= SMALL.partitions
    assert arms["leader killed"]["leaderless_s"] > 0
    assert arms["storm"]["storm_edits_s"] > 0
    assert arms["steady"]["ageing_share"] > 0.2
    assert arms["polled"]["all_max_ms"] > 2_000
    show(report, LiveScenario.about)
    assert "pause max ms" in capsys.readouterr().out

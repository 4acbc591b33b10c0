"""The arms of `live`: which figures are read of each span of edits."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios import live_figures as figures
from evenlane.engine.proof.scenarios import live_load as load
from evenlane.engine.proof.scenarios.arrivals import MILLISECOND, SECOND
from evenlane.engine.proof.scenarios.figures import percentile, ratio
from evenlane.engine.proof.scenarios.live_figures import AROUND_NS, Owners, Seen
from evenlane.engine.proof.scenarios.live_rules import Rules
from evenlane.engine.proof.scenarios.live_run import LEADER, POLLED, STORM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.live_edits import Edit
    from evenlane.engine.proof.scenarios.live_load import Projects
    from evenlane.engine.proof.scenarios.live_run import Outcome, Span

_SETTLED_NS = SECOND // 4  # shares are counted from so long after an edit on
CHANGES = tuple(change for toggle in load.TOGGLES for change in (toggle.there, toggle.back))
_DRAINS = ("drain", "drain over")


class Reading:
    def __init__(self, outcome: Outcome, projects: Projects) -> None:
        self._of, self._projects = outcome, projects
        self._owners = Owners(outcome.reigns, outcome.died)
        watched = {*projects.by_name, projects.peer.name, projects.storm.name}
        edited = [each for each in outcome.records if each.project in watched]
        self._rules = Rules(edited)
        self._by_node: dict[str, list[int]] = defaultdict(list)
        for each in sorted((each for each in outcome.records if each.began), key=lambda each: each.at):
            self._by_node[each.node].append(each.at)

    def arms(self) -> dict[str, Figures]:
        return {name: self._arm(name, span) for name, span in self._of.spans.items()}

    def _arm(self, name: str, span: Span) -> Figures:
        edits = [edit for edit in self._of.edits if span.start <= edit.at < span.end and edit.until > span.led]
        by_change: dict[str, list[float]] = {
            change: [] for change in CHANGES if name != POLLED or change not in _DRAINS
        }
        passed = missed = 0
        for edit in edits:
            if edit.change not in by_change:
                continue
            seen, others = self._seen(edit, max(edit.at, span.led))
            by_change[edit.change] += [each.ns / MILLISECOND for each in seen]
            missed += sum(each.missed for each in seen)
            passed += others
        return {
            "edits": len(edits), "moved": self._of.moved[name], "judged": sum(map(len, by_change.values())),
            "not_judged": passed, "missed": missed,
            **_spread("all", [ns for each in by_change.values() for ns in each]),
            **{key: value for change, each in by_change.items() for key, value in _spread(change, each).items()},
            **_spread("accepted", self._accepted(edits, span)),
            **({"leaderless_s": (span.led - span.start) / SECOND} if name == LEADER else {}),
            **(self._storm() if name == STORM else {}),
            **self._holds(edits, span),
        }  # fmt: skip

    # ---- latencies

    def _seen(self, edit: Edit, start: int) -> tuple[list[Seen], int]:
        """On each node that is judged, and how many are not: they owned something of it in a part of the time only."""
        if edit.change in _DRAINS:
            return self._at_producer(edit, start), 0
        of = self._projects.by_name[edit.name].partitions
        owners = self._owners.throughout(of, start - AROUND_NS, start + AROUND_NS)
        seen = self._rules.seen(edit, owners, start)
        some = self._owners.throughout(of, start, start) - {each.node for each in seen}
        return seen, len(some)

    def _at_producer(self, edit: Edit, start: int) -> list[Seen]:
        """From the write to the first put with the other outcome, or the last one with the old."""
        tried = [each for each in self._of.tried if each.project == edit.name and start <= each.at < edit.until]
        new = edit.change != _DRAINS[0]
        first = next((each.ended for each in tried if each.taken == new), None)
        if first is None:
            return [Seen(edit, "producer", edit.until - start, True)] if tried else []
        old = [each.at for each in tried if each.taken != new]
        return [Seen(edit, "producer", max([first, *old]) - start)]

    def _accepted(self, edits: Iterable[Edit], span: Span) -> list[float]:
        told = self._of.accepted
        return [(told[edit.revision] - max(edit.at, span.led)) / MILLISECOND for edit in edits if edit.revision in told]

    # ---- what holds after it

    def _holds(self, edits: Sequence[Edit], span: Span) -> Figures:
        """In the rest of each edit's time, over all nodes: medians. And the quota's worst second."""
        found: dict[str, list[float]] = defaultdict(list)
        for edit in edits:
            start, end = edit.at + _SETTLED_NS, edit.until
            own = figures.count(self._rules.starts, edit.name, start, end)
            if edit.change == "weight up":
                peers = figures.count(self._rules.starts, self._projects.peer.name, start, end)
                found["weight_up_over_peer"].append(ratio(own, peers) or 0.0)
            elif edit.change == "ageing on":
                found["ageing_share"].append(ratio(figures.count(self._rules.low, edit.name, start, end), own) or 0.0)
            elif edit.change == "drain":
                found["handed_out_while_draining"].append(own)
        medians = {name: percentile(sorted(values), 0.5) for name, values in found.items()}
        silent = max(
            figures.silence(at for at in times if span.start <= at < span.end) for times in self._by_node.values()
        )
        return {
            **medians,
            "worst_second_over_quota": self._worst_second(span),
            "node_silent_max_ms": silent / MILLISECOND,
        }

    def _storm(self) -> Figures:
        """One quota, edited without end: what it allowed, and how soon the last edit counted."""
        storm, project = self._of.storm, self._projects.storm
        last = storm.last._replace(until=self._of.spans[STORM].end)
        partitions = self._projects.lies_on(project)
        owners = self._owners.throughout(partitions, last.at - AROUND_NS, last.at + AROUND_NS)
        seen = sorted(each.ns / MILLISECOND for each in self._rules.seen(last, owners, last.at))
        times = [at for at in figures.merged(self._rules.starts, project.name) if storm.start <= at < last.until]
        return {
            "storm_edits_s": storm.edits * SECOND / (last.at - storm.start),
            **_spread("storm_last", seen),
            "storm_worst_second_over_quota": figures.worst_second(times) / max(load.STORM_QPS),
        }

    def _worst_second(self, span: Span) -> float:
        """Of the topics whose quota is edited: the most in a second over the highest quota there was."""
        names = [name for name, each in self._projects.by_name.items() if each.toggle.kind == load.QUOTA]
        times = [
            [at for at in figures.merged(self._rules.starts, name) if span.start <= at < span.end] for name in names
        ]
        return max(map(figures.worst_second, times)) / load.QPS

    def least_left(self) -> float:
        """Of the topics that are edited, the fewest messages that nobody had begun, over all it had at first."""
        begun: dict[str, set[tuple[int, str, int]]] = defaultdict(set)
        for record in self._of.records:
            begun[record.project].add(record.message)
        waiting = self._projects.waits
        return min(1 - len(begun[name]) / count for name, count in waiting.items())


def _spread(name: str, values: Iterable[float]) -> Figures:
    found = sorted(values)
    return {
        f"{name}_p50_ms": percentile(found, 0.5), f"{name}_p99_ms": percentile(found, 0.99),
        f"{name}_max_ms": found[-1] if found else None,
    }  # fmt: skip

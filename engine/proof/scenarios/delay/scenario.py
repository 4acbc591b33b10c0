"""`delay`: how exactly messages are handled when they are due, while a million others wait for later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.proof.figures import spread
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND, stream_of
from evenlane.engine.proof.report import Bar
from evenlane.engine.proof.scenarios.cluster_scenario import ClusterScenario
from evenlane.engine.proof.scenarios.delay.load import DelayProjects, DelaySize
from evenlane.engine.proof.scenarios.delay.run import DelayRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.report import Report
    from evenlane.engine.proof.scenario import Arms, Progress

_LATE_MS = 100.0
_HEAP, _WHEEL = "by heap", "once a second"
_SUBJECTS = 300
_WITHIN_NS = 3_600 * SECOND
_MOST = 1_000  # released in one step, as the node does


class DelayScenario(ClusterScenario):
    name = "delay"
    about = "1,000,000 delayed messages wait, others become due; a restart and a handoff in the middle"
    size_type, projects_type, run_type = DelaySize, DelayProjects, DelayRun
    sim_notes = ("the index alone, a million messages due within an hour",)
    broker_notes = ("lateness: handler start minus due time, by the clock of the machine that all of it runs on",)

    def sim_round(self, seed: int, progress: Progress) -> Arms:
        """The index of delayed messages alone."""
        progress(self.name, 0.0)
        return {_HEAP: by_heap(seed, progress, self.size.waiting), _WHEEL: by_wheel(seed, self.size.waiting)}

    def sim_bars(self, arms: Arms) -> list[Bar]:
        wheel = arms[_WHEEL]["lateness_p99_ms"]
        return [
            Bar("lateness max, ms", arms[_HEAP]["lateness_max_ms"], "<=", _LATE_MS),
            Bar("before it was due", arms[_HEAP]["early"], "<=", 0),
            Bar("looked at once a second: lateness p99, ms", wheel, ">", _LATE_MS, "control"),
        ]

    def broker_bars(self, arms: Arms, rounds: Sequence[Arms], simulated: Report | None) -> list[Bar]:  # noqa: ARG002
        steady, whole, free = arms["a million wait"], arms["whole run"], arms["nothing waits"]["free_over_quota"]
        return [
            Bar("lateness p99, ms", steady["lateness_p99_ms"], "<=", _LATE_MS),
            Bar("lateness max, ms", steady["lateness_max_ms"], "<=", _LATE_MS),
            Bar("before it was due", whole["early"], "<=", 0),
            Bar("handled twice", whole["handled_twice"], "<=", 0),
            Bar("never handled", whole["never_handled"], "<=", 0),
            Bar("due at once: msg/s / quota, at least", steady["burst_over_quota"], ">=", 0.98),
            Bar("due at once: msg/s / quota, at most", steady["burst_over_quota"], "<=", 1.02),
            Bar("due at once: p99 wait of others, ms", steady["wait_p99_ms"], "<=", _LATE_MS),
            Bar("MB more while a million wait", whole["memory_more_mb"], "<=", 100 * self.size.waiting / 1e6),
            Bar("due at once, no quota: most in 1 s / quota of the other", free, ">", 2, "control"),
        ]


def by_heap(seed: int, progress: Progress, count: int) -> Figures:
    """The product: the next due time is known at any time."""
    rng, index = stream_of(seed, "sim"), DelayHeap()
    dues = [rng.randrange(_WITHIN_NS) for _ in range(count)]
    for sequence, due in enumerate(dues, 1):
        index.add(b"%d" % (sequence % _SUBJECTS), sequence, due)
    late: list[float] = []
    progress("delay: one after another", 0.3)
    while (now := index.next_due()) is not None:
        for _, sequence in index.release(now, _MOST):
            late.append((now - dues[sequence - 1]) / MILLISECOND)
    return _figures(late, count)


def by_wheel(seed: int, count: int) -> Figures:
    """The control: looks once, at the end of a second, for the messages due in it."""
    rng = stream_of(seed, "sim")
    dues = (rng.randrange(_WITHIN_NS) for _ in range(count))
    return _figures([(-(-due // SECOND) * SECOND - due) / MILLISECOND for due in dues], count)


def _figures(late: list[float], count: int) -> Figures:
    early = sum(each < 0 for each in late)
    return {**spread(late, "lateness"), "early": early, "put": count, "released": len(late)}

"""Watches over attempts, messages that kill their process, pauses and times to live while a simulation runs."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.history import Rules
from tests.simulation.loop import SECOND
from tests.simulation.repeats import HARMLESS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tests.simulation.history import Bounds, Fault, Run
    from tests.simulation.loop import Actor

_DIED = re.compile(r"its process died in attempt (\d+)")
_FAILED = re.compile(r"failed (once|\d+ times)")


class Attempts:
    """Promise "attempts" (E13, K4): pauses aside, an attempt's number is one higher at the most than how many handlers
    were begun before it, and no message is dead-lettered as having failed before `max_attempts` were. A process that
    dies right before a handler's start may have begun it, as far as others can know: so each fault since the put
    may have cost one more attempt.

    Promise "poison" (X11), with N the topic's `max_attempts`:

    1. A message whose every handler kills its process does so N + 1 times at the most, whatever else happens. One whose
       handlers fail, too, at first or by turns, has N + 2 handlers at the most while nothing else is wrong: its copies
       are recorded in flight as it was. (One more, since an attempt that fails ends the suspicion.)
    2. The reason `its process died in attempt M` of a dead letter is true: M is N or more, and so many handlers of it
       were begun or about to start, of which one did not end, or its end was not durably settled.
    3. While nothing else is wrong than one such message: its neighbours have an attempt counted at the most for each of
       its kills but the first, if they were in flight then or about to start, and none of them is dead-lettered for it.
       Those that may be tried only once pay for the first one, too.
    4. Under one lease, a node runs one suspect at a time: if the process dies again, that one is the cause.

    Promise "pause": a node whose handler raised `Pause(after)` starts nothing of that topic for so long; a moment after
    it aside, for what had been taken by then.

    All of this is void for what a replaced or rolled back stream has held. What it held afterwards, by the same
    sequences perhaps, has nothing to pay for what happened before, but for what the servers' clocks don't tell apart.
    """

    def __init__(
        self,
        now: Callable[[], int],
        fail: Callable[[str, str], None],
        topics: Mapping[str, Rules],
        poison: Mapping[str, str],
        bounds: Bounds,
        faults: list[Fault],
        waiting: Callable[[], set[str]],
        unsteady: Collection[str] = (),
    ) -> None:
        """`waiting` gives the messages that aren't settled, `unsteady` are the killers that also fail."""
        self._waiting, self._unsteady = waiting, unsteady
        self._put: dict[str, int] = {}  # when each message was first put
        self._now, self._fail, self._topics, self._bounds, self._faults = now, fail, topics, bounds, faults
        self._poison = poison  # uid -> project
        self._runs: dict[str, list[Run]] = {}
        self._project: dict[str, str] = {}
        self._stale: set[str] = set()
        self._kills: dict[str, int] = {}
        self._paused: dict[tuple[Actor, str], tuple[int, int]] = {}
        self._suspects: dict[Actor, list[Run]] = {}
        self._hits: Counter[str] = Counter()  # by neighbour: the kills for which it may have an attempt counted
        self.last_kill = 0

    @property
    def lone_killer(self) -> bool:
        """Whether nothing else is wrong, and was, than the kills of one message."""
        return len(self._poison) == 1 and all(fault.by is not None for fault in self._faults)

    def starts(self, what: str, uid: str, project: str, attempt: int, run: Run, *, suspect: bool = False) -> None:
        before = self._runs.setdefault(uid, [])
        most = 1 + sum(other.how != "paused" for other in before)
        before.append(run)
        if attempt > most and attempt > most + self._about_to_start(uid) and uid not in self._stale:
            self._fail("attempts", f"{what} starts as attempt {attempt}, though only {most - 1} were begun before it")
        if uid not in self._poison and self.lone_killer:
            self._check_neighbour(what, uid, attempt)
        if uid in self._poison:
            self._check_killer(what, uid)
        if suspect:
            self._check_suspect(what, run)
        self._check_pause(what, project, run)

    def put(self, uid: str, project: str, unclear: int) -> None:
        """It, or a copy of it, is stored; what happened so many ns before may have cost it an attempt, too."""
        self._put.setdefault(uid, self._now() - unclear)
        self._project[uid] = project

    def _about_to_start(self, uid: str) -> int:
        """How often a handler of it may have been about to start when something happened, and none ran."""
        return sum(self._may_have_hit_its_start(uid, fault) for fault in self._faults)

    def _may_have_hit_its_start(self, uid: str, fault: Fault) -> bool:
        if fault.kind in HARMLESS or fault.by == uid or (fault.end is not None and fault.end < self._put[uid]):
            return False
        runs = (run for run in self._runs.get(uid, ()) if run.how not in {"failed", "paused"})  # these count as such
        return not any(run.node is fault.node and self._hit(run, fault.start) for run in runs)

    def _check_neighbour(self, what: str, uid: str, attempt: int) -> None:
        failed = sum(run.how == "failed" for run in self._runs[uid])
        if attempt > 1 + failed + self._hits[uid]:
            self._fail("poison", f"{what} starts as attempt {attempt} after {failed} failed ones: it pays for another")

    def _check_killer(self, what: str, uid: str) -> None:
        begun, most = len(self._runs[uid]), self._topics[self._poison[uid]].max_attempts
        if begun > most + 2 and self.lone_killer and uid not in self._stale:
            self._fail("poison", f"{what} starts for the {begun}. time, of {most} attempts")

    def _check_suspect(self, what: str, run: Run) -> None:
        running = [other for other in self._suspects.get(run.node, ()) if other.end is None]
        if any(other.lease == run.lease for other in running):
            self._fail("poison", f"{what} starts as a suspect beside another one")
        self._suspects[run.node] = [*running, run]

    def _check_pause(self, what: str, project: str, run: Run) -> None:
        since, until = self._paused.get((run.node, project), (0, 0))
        if since + self._bounds.settle < run.start < until and not self._faults:
            self._fail("pause", f"{what} starts, though its topic is paused until {until / SECOND:.6f} s")

    def paused(self, node: Actor, project: str, after: float) -> None:
        """A handler wants no more of this topic on its node for `after` seconds."""
        self._paused[node, project] = (self._now(), self._now() + int(after * SECOND))

    def paused_until(self, node: Actor, project: str) -> int:
        return self._paused.get((node, project), (0, 0))[1]

    def kills(self, uid: str, node: Actor) -> None:
        """Its handler is about to end its process; not a fault yet."""
        self.last_kill = self._now()
        self._kills[uid] = kills = self._kills.get(uid, 0) + 1
        most = self._topics[self._poison[uid]].max_attempts
        if kills > most + 1 and uid not in self._stale and uid not in self._unsteady:
            self._fail("poison", f"{uid} kills a process for the {kills}. time, {node}, of {most} attempts")
        ended = {
            o for o, runs in self._runs.items() if any(run.node is node and self._hit(run, self._now()) for run in runs)
        }
        self._hits.update(o for o in ended | self._waiting() if kills > 1 or self._single(o))

    def _single(self, uid: str) -> bool:
        """Whether it may be tried only once."""
        return self._topics[self._project[uid]].max_attempts == 1

    def _hit(self, run: Run, at: int) -> bool:
        """Whether it was in flight, or its end not settled, when something happened to its node."""
        return run.start <= at and (run.end is None or run.end >= at - self._bounds.settle)

    def mark_stale(self, uid: str) -> None:
        """The stream that it stood in was replaced or rolled back: what was counted may be lost."""
        self._stale.add(uid)

    def dead(self, uid: str, project: str, reason: str) -> None:
        """Its dead letter is stored."""
        if uid in self._stale or reason == "expired" or reason.startswith("rejected"):
            return
        most = self._topics.get(project, Rules()).max_attempts
        runs = self._runs.get(uid, [])
        begun = [run for run in runs if run.how != "paused"]
        lost, spare = sum(run.how != "failed" for run in begun), self._about_to_start(uid)
        died, failed = _DIED.match(reason), _FAILED.match(reason)
        if died is None and failed is None:
            self._fail("attempts", f"{uid} is dead-lettered for no known reason: {reason!r}")
        elif len(begun) + spare < most:
            self._fail("attempts", f"{uid} is dead-lettered ({reason}) after {len(begun)} of {most} attempts")
        elif died is not None and (not lost + spare or not most <= int(died[1]) <= len(begun) + spare):
            self._fail("poison", f"{uid} is dead-lettered ({reason}) after {len(begun)} attempts, {lost} of them lost")
        elif died is not None and uid not in self._poison and self.lone_killer:
            self._fail("poison", f"{uid} is dead-lettered ({reason}), though it does no harm")

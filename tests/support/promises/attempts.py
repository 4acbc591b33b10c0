"""Checks the numbers of attempts, messages that kill their process, and pauses."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from tests.support.promises.fault_kinds import KINDS
from tests.support.promises.history import Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tests.support.promises.history import Bounds, Fault, Process, Run

_SECOND = 1_000_000_000
_DIED = re.compile(r"its process died in attempt (\d+)")
_FAILED = re.compile(r"failed (once|\d+ times)")


class Attempts:
    """Promise "attempts" (E13, K4): except for pauses, the number of an attempt is at most one higher than the number
    of handlers that started before it. No message is dead-lettered as failed before `max_attempts` handlers started.
    For all that others can know, a process that dies right before the start of a handler may have started it: so each
    fault since the put may have cost one more attempt.

    Promise "poison" (X11), with N the topic's `max_attempts`:

    1. If every handler of a message kills its process, this happens at most N + 1 times, whatever else happens. If
       handlers of it also fail, at first or by turns, it has at most N + 2 handlers while nothing else is wrong: its
       copies are recorded in flight, too. (The extra one: a failed attempt ends the suspicion.)
    2. The reason `its process died in attempt M` of a dead letter is true: M is at least N, M handlers of it started
       or were about to start, and one of them did not end, or its end was not durably settled.
    3. While one such message is all that is wrong: an attempt of a neighbour is counted at most for each kill but the
       first, if the neighbour was in flight then or about to start, and no neighbour is dead-lettered for it.
       Neighbours with a single attempt pay for the first kill, too.
    4. Under one lease, a node runs one suspect at a time: if the process dies again, that suspect is the cause.

    Promise "pause": a node whose handler raised `Pause(after)` starts nothing of that topic for `after` seconds, except
    for messages that were taken in the moment of the pause.

    None of this holds for the messages of a stream that was replaced or rolled back. Messages stored there later,
    perhaps under the same sequences, don't pay for earlier events, as far as the servers' clocks can tell them apart.
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
        """`waiting` returns the messages that aren't settled; `unsteady` are the killers that also fail."""
        self._waiting, self._unsteady = waiting, unsteady
        self._put: dict[str, int] = {}  # when each message was first put
        self._now, self._fail, self._topics, self._bounds, self._faults = now, fail, topics, bounds, faults
        self._poison = poison  # uid -> project
        self._runs: dict[str, list[Run]] = {}
        self._project: dict[str, str] = {}
        self._stale: set[str] = set()
        self._kills: dict[str, int] = {}
        self._paused: dict[tuple[Process, str], tuple[int, int]] = {}
        self._suspects: dict[Process, list[Run]] = {}
        self._hits: Counter[str] = Counter()  # by neighbour: the kills for which it may have an attempt counted
        self.last_kill = 0

    @property
    def lone_killer(self) -> bool:
        """Whether the kills of one message are all that has been wrong so far."""
        return len(self._poison) == 1 and all(fault.by is not None for fault in self._faults)

    def starts(self, what: str, uid: str, project: str, attempt: int, run: Run, *, suspect: bool = False) -> None:
        before = self._runs.setdefault(uid, [])
        most = 1 + sum(other.how != "paused" for other in before)
        before.append(run)
        if attempt > most and attempt > most + self._about_to_start(uid) and uid not in self._stale:
            self._fail("attempts", f"{what} starts as attempt {attempt}, although only {most - 1} started before it")
        if uid not in self._poison and self.lone_killer:
            self._check_neighbour(what, uid, attempt)
        if uid in self._poison:
            self._check_killer(what, uid)
        if suspect:
            self._check_suspect(what, run)
        self._check_pause(what, project, run)

    def put(self, uid: str, project: str, unclear: int) -> None:
        """The message, or a copy, is stored. Faults up to `unclear` ns before may have cost it an attempt, too."""
        self._put.setdefault(uid, self._now() - unclear)
        self._project[uid] = project

    def _about_to_start(self, uid: str) -> int:
        """The number of faults that may have hit a handler of it that was about to start, and none that ran."""
        return sum(self._may_have_hit_its_start(uid, fault) for fault in self._faults)

    def _may_have_hit_its_start(self, uid: str, fault: Fault) -> bool:
        over = fault.end is not None and fault.end < self._put[uid]
        if KINDS[fault.kind].is_harmless or fault.by == uid or over:
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
            self._fail("poison", f"{what} starts {begun} times, of {most} attempts")

    def _check_suspect(self, what: str, run: Run) -> None:
        running = [other for other in self._suspects.get(run.node, ()) if other.end is None]
        if any(other.lease == run.lease for other in running):
            self._fail("poison", f"{what} starts as a suspect while another suspect runs")
        self._suspects[run.node] = [*running, run]

    def _check_pause(self, what: str, project: str, run: Run) -> None:
        since, until = self._paused.get((run.node, project), (0, 0))
        if since + self._bounds.settle < run.start < until and not self._faults:
            self._fail("pause", f"{what} starts, although its topic is paused until {until / _SECOND:.6f} s")

    def paused(self, node: Process, project: str, after: float) -> None:
        """A handler pauses this topic on its node for `after` seconds."""
        self._paused[node, project] = (self._now(), self._now() + int(after * _SECOND))

    def paused_until(self, node: Process, project: str) -> int:
        return self._paused.get((node, project), (0, 0))[1]

    def kills(self, uid: str, node: Process) -> None:
        """A handler of the message is about to end its process. The fault is not recorded yet."""
        self.last_kill = self._now()
        self._kills[uid] = kills = self._kills.get(uid, 0) + 1
        most = self._topics[self._poison[uid]].max_attempts
        if kills > most + 1 and uid not in self._stale and uid not in self._unsteady:
            self._fail("poison", f"{uid} has killed {kills} processes, the last is {node}, of {most} attempts")
        ended = {
            o for o, runs in self._runs.items() if any(run.node is node and self._hit(run, self._now()) for run in runs)
        }
        self._hits.update(o for o in ended | self._waiting() if kills > 1 or self._single(o))

    def _single(self, uid: str) -> bool:
        """Whether its topic allows a single attempt."""
        return self._topics[self._project[uid]].max_attempts == 1

    def _hit(self, run: Run, at: int) -> bool:
        """Whether it was in flight, or its end not settled, when a fault hit its node at that time."""
        return run.start <= at and (run.end is None or run.end >= at - self._bounds.settle)

    def mark_stale(self, uid: str) -> None:
        """Its stream was replaced or rolled back, so that counts may be lost."""
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
            self._fail("poison", f"{uid} is dead-lettered ({reason}), although it does no harm")

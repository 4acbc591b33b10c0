"""The arms of `rebalance`: which figures are read of a join, a leave and a kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios import rebalance_figures as figures
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.figures import percentile, ratio
from evenlane.engine.proof.scenarios.rebalance_load import DEEP, FULL, PACED
from evenlane.engine.proof.scenarios.rebalance_run import COMES, STAY

if TYPE_CHECKING:
    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.rebalance_figures import Move
    from evenlane.engine.proof.scenarios.rebalance_run import Outcome, Span

JOIN, LEAVE, KILL = "join", "leave", "kill -9"


def arms(outcome: Outcome) -> dict[str, Figures]:
    return _Reading(outcome).arms()


class _Reading:
    def __init__(self, outcome: Outcome) -> None:
        self._of = outcome
        self._begun = figures.begins(outcome.records)
        self._paced = [record for record in self._begun if record.project.startswith(PACED)]
        self._waiting = [r for r in self._begun if r.project.startswith((DEEP, FULL)) and not r.held]

    def arms(self) -> dict[str, Figures]:
        of = self._of
        join, leave = self._moved(of.join), self._moved(of.leave)
        own = sum(owner == COMES for owner in of.leave.before.values())
        return {
            JOIN: join
            | {"moved_over_ideal": ratio(join["moved"], len(of.join.after) / (len(STAY) + 1))}
            | self._graceful(of.join),
            LEAVE: leave
            | {"own": own, "moved_over_own": ratio(leave["moved"], own), "sigterm_to_exit_s": of.leave.seconds}
            | self._graceful(of.leave),
            KILL: self._moved(of.kill) | self._killed() | self._elsewhere(of.kill),
        }

    def _moved(self, span: Span) -> Figures:
        """What moved, and how long it stood still."""
        moves = self._moves(span)
        pauses = sorted(pause / 1e6 for pause in figures.pauses(self._waiting, moves).values())
        return {
            "moved": len(figures.moved(span.before, span.after)),
            "generations": span.generations,
            "paused": len(pauses),
            **figures.spread(pauses, "pause"),
            **figures.stages(self._waiting, self._begun, moves),
            "between_starts_ms": figures.between(self._waiting, span.start),
        }

    def _moves(self, span: Span) -> list[Move]:
        return figures.moves(self._of.reigns, span.start, span.end)

    def _graceful(self, span: Span) -> Figures:
        moves = self._moves(span)
        moved, deep = {move.partition for move in moves}, {self._of.deep}
        start = min((at for at in self._of.planned if at >= span.start), default=span.end)
        end = max(figures.first_starts(self._begun, moves).values(), default=start)
        there = figures.waits(self._paced, moved - deep, start, end, self._of.offset)
        behind = figures.waits(self._paced, moved & deep, start, end, self._of.offset)
        return {
            "moving_s": (end - start) / SECOND,
            "waited_where_moved": len(there),
            **figures.spread(there, "wait_where_moved"),
            **self._elsewhere(span),
            "waited_beside_backlog": len(behind),
            **figures.spread(behind, "wait_beside_backlog"),
            "begun_again": self._again(
                span.start, self._of.leave.start if span is self._of.join else self._of.kill.start
            ),
            **figures.held(self._of.records, moves),
        }

    def _elsewhere(self, span: Span) -> Figures:
        """Waits in partitions that stay where they are: while others move, and in the calm before."""
        moves = self._moves(span)
        stay = set(span.after) - {move.partition for move in moves}
        start = min((at for at in self._of.planned if at >= span.start), default=span.end)
        end = max(figures.first_starts(self._begun, moves).values(), default=start)
        waits = figures.waits(self._paced, stay, start, end, self._of.offset)
        before = figures.waits(self._paced, stay, span.calm, span.start, self._of.offset)
        return {
            **figures.spread(waits, "wait_elsewhere"),
            "wait_before_p99_ms": percentile(before, 0.99),
            "elsewhere_over_before": ratio(percentile(waits, 0.99), percentile(before, 0.99)),
        }

    def _again(self, start: int, end: int | None = None) -> int:
        """Begins in this time of messages that had been begun before, in it or earlier."""
        until = [figures.again(r for r in self._begun if at is None or r.at < at) for at in (start, end)]
        return until[1] - until[0]

    def _killed(self) -> Figures:
        of, moves = self._of, self._moves(self._of.kill)
        handled = figures.handled_again(self._begun, moves)
        released = [move.released for move in moves]
        ended = {r.message for r in of.records if not r.began and r.project.startswith(PACED)}
        return {
            "lease_ended_after_s": (max(released) - of.kill.start) / SECOND if released else None,
            "leader_gone_after_s": self._leader_gone(),
            "handled_again_partitions": len(handled),
            "handled_again_p50_s": percentile(handled, 0.5),
            "handled_again_max_s": handled[-1] if handled else None,
            **figures.fed(moves, of.caught_up),
            "put_backlog_s": of.fill_s,
            "begun_again": self._again(of.kill.start),
            "may_come_again": figures.may_come_again(of.records, of.victim, of.kill.start),
            "put": of.paced,
            "never_handled": of.paced - len(ended),
        }

    def _leader_gone(self) -> float | None:
        gone = [at for at in self._of.leaderless if at >= self._of.kill.start]
        return (gone[0] - self._of.kill.start) / SECOND if gone else None

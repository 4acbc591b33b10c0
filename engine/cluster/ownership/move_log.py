"""Counts and logs the partitions that a node acquires, releases and loses: one line for each plan carried out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.ranges import format_ranges

if TYPE_CHECKING:
    from collections import Counter

    from evenlane.ring.membership.member import Member

_log = structlog.get_logger(__name__)

INTERVAL_S = 10.0
_KINDS = ("acquired", "released", "lost")


class MoveLog:
    """Log of one session. `counts` has the moves of the process, by kind.

    A plan that is carried out has a line with all moves since the line before. Moves without such a plan have one when
    they are complete, at the end of the session, and `interval_s` after the first of them, so that a plan that can't be
    carried out isn't silent. Single moves are logged at debug.

    Invariants: `_moved` has the moves that no line has reported. `_timer` is set while there are any that were not
    lost; those that were lost have a warning of their own, for which `_lost` collects what one event takes away.
    `_releasing` has the partitions, with the create-revisions of their keys, of which no release has been counted. The
    watch of keys often reports a release before the transaction is answered.
    """

    def __init__(self, env: str, member: Member, counts: Counter[str], interval_s: float = INTERVAL_S) -> None:
        self._env, self._member, self._counts, self._interval_s = env, member, counts, interval_s
        self._moved: dict[str, list[int]] = {kind: [] for kind in _KINDS}
        self._lost: list[int] = []
        self._releasing: set[tuple[int, int]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def note_acquired(self, partition: int, epoch: int, held: int, took_s: float) -> None:
        """Note the end of a takeover. `held`: previous owners that still handle some of its messages."""
        generation = self._member.plan.generation
        _log.debug("owned", partition=partition, epoch=epoch, generation=generation, held=held, took_s=round(took_s, 3))
        self._note("acquired", partition)

    def note_releasing(self, partition: int, created: int) -> None:
        """Note the begin of a release. `created` is the key's create-revision."""
        self._releasing.add((partition, created))

    def note_released(self, partition: int, created: int, epoch: int, held: int) -> None:
        """Note the answer to a release. `held`: messages of the partition that still run here."""
        generation = self._member.plan.generation
        _log.debug("released", partition=partition, epoch=epoch, generation=generation, held=held)
        self._count_release(partition, created)

    def note_lost(self, partition: int, epoch: int) -> None:
        """Note that the partition was taken away. The warning follows once the event loop has processed the event, as
        etcd reports one revision of many keys key by key.
        """
        _log.debug("lost", partition=partition, epoch=epoch, generation=self._member.plan.generation)
        self._counts["lost"] += 1
        self._moved["lost"].append(partition)
        if not self._lost:
            asyncio.get_running_loop().call_soon(self._warn)
        self._lost.append(partition)

    def note_plan(self, partitions: int, generation: int) -> None:
        """Log that the plan of this generation is carried out."""
        self._count_unanswered_releases()
        _log.info(
            "serving" if partitions else "standing by",
            env=self._env, partitions=partitions, generation=generation, **move_fields(self._moved),
        )  # fmt: skip
        self._clear()

    def flush(self) -> None:
        """Log the moves that no line has reported, if there are any beyond those that were lost."""
        self._count_unanswered_releases()
        if self._timer is not None:
            missing = self._member.plan.desired.difference(self._member.owned)
            _log.info(
                "partitions moved", env=self._env, partitions=len(self._member.owned),
                generation=self._member.plan.generation, **move_fields(self._moved), missing=format_ranges(missing),
            )  # fmt: skip
            self._clear()

    def close(self) -> None:
        """Log what is left at the end of the session."""
        self._warn()
        self.flush()

    def _count_unanswered_releases(self) -> None:
        epochs = self._member.epochs
        for partition, created in [each for each in self._releasing if epochs.get(each[0]) != each[1]]:
            self._count_release(partition, created)

    def _count_release(self, partition: int, created: int) -> None:
        if (partition, created) in self._releasing:
            self._releasing.discard((partition, created))
            self._note("released", partition)

    def _note(self, kind: str, partition: int) -> None:
        self._counts[kind] += 1
        self._moved[kind].append(partition)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self.flush)

    def _warn(self) -> None:
        if self._lost:
            _log.warning(
                "lost", count=len(self._lost), lost_partitions=format_ranges(self._lost),
                generation=self._member.plan.generation,
            )  # fmt: skip
            self._lost.clear()

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partitions in self._moved.values():
            partitions.clear()


def move_fields(moved: dict[str, list[int]]) -> dict[str, object]:
    """Return the number of moves and the partitions that moved, as ranges, by kind."""
    return {kind: len(moved[kind]) for kind in _KINDS} | {
        f"{kind}_partitions": format_ranges(set(moved[kind])) for kind in _KINDS
    }

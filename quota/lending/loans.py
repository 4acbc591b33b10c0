"""A node's loans: the parts of topics that it has lent to other nodes, and those that it has borrowed (docs/adr/0019).
Pure.

A loan is safe if the lender stops using it before the borrower begins, and begins again only after the borrower has
stopped. No two clocks are compared:

- At instant a (its own clock), a lender promises to leave a part unused until a + duration. It promises only as long as
  it trusts its lease: if it dies, its groups have no new owner before the promise has expired.
- A borrower may use a grant until r + duration, where r (its own clock) is when it sent the report that the grant
  answers. The leader had that report before it asked for the promise, so r was before a, and the grant ends first.
- Within an epoch, the leader ensures that grants never exceed promises (`evenlane.quota.lending.rounds`). Promises to
  leaders of different epochs add up; of one leader's promises, the largest counts.

Times are monotonic ns of this node, parts are fractions of a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARGIN = 0.1
"""The fraction of a loan's duration by which a borrower ends early, because messages that it has handed out must still
start.
"""


@dataclass(slots=True)
class _Account:
    """The loans of one topic. `promises`: (epoch, round) -> (part, until). `borrowed` may be used until `until`."""

    promises: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    borrowed: float = 0.0
    until: int = 0

    def expire(self, now: int) -> bool:
        """Drop expired loans; True if there were any."""
        over = [made for made, (_, until) in self.promises.items() if until <= now]
        for made in over:
            del self.promises[made]
        ended = self.borrowed > 0 and self.until <= now
        if ended:
            self.borrowed = 0.0
        return bool(over) or ended

    def sum_lent(self, but: int | None = None) -> float:
        """The part lent to all leaders, or to all but one; for each leader its largest promise."""
        most: dict[int, float] = {}
        for (epoch, _), (part, _until) in self.promises.items():
            if epoch != but:
                most[epoch] = max(part, most.get(epoch, 0.0))
        return sum(most.values(), 0.0)

    @property
    def ends(self) -> int:
        """The time at which the next loan expires; 0 if there is none."""
        untils = [until for _, until in self.promises.values()]
        return min(untils + ([self.until] if self.borrowed else []), default=0)


class Loans:
    """The loans of a node. Messages that are older than the newest leader and round seen (`_newest`) are ignored: they
    were delayed.

    Invariant: a project is in `_accounts` only while something is lent or borrowed.
    """

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._newest = (0, 0)
        self._reported: dict[tuple[int, int], int] = {}

    # ---- state

    def part(self, project: str, own: float) -> float:
        """The part that the node may use, if its groups bring along `own`."""
        account = self._accounts.get(project)
        return own if account is None else max(0.0, own - account.sum_lent()) + account.borrowed

    def totals(self, project: str) -> tuple[float, float]:
        """The lent part, and the borrowed part."""
        account = self._accounts.get(project)
        return (0.0, 0.0) if account is None else (account.sum_lent(), account.borrowed)

    def compute_owing(self, project: str, own: float, now: int) -> int:
        """The time (ns) for which other nodes may still use a part that the node no longer owns; 0 if there is none."""
        account = self._accounts.get(project)
        if account is None or account.sum_lent() <= own:
            return 0
        return max((until for _, until in account.promises.values()), default=now) - now

    def list_lent(self) -> dict[str, int]:
        """The projects of which a part is lent, each with the time at which its last promise expires."""
        return {
            project: max(until for _, until in account.promises.values())
            for project, account in self._accounts.items()
            if account.promises
        }

    def find_lent_until(self) -> int:
        """The time at which the last promise expires; 0 if there is none."""
        return max(self.list_lent().values(), default=0)

    @property
    def projects(self) -> Iterable[str]:
        """The projects with anything lent or borrowed."""
        return self._accounts.keys()

    # ---- requests of the leader

    def begin_report(self, epoch: int, number: int, now: int) -> bool:
        """Note that the leader's request of this round is answered now; False if a newer round has been seen."""
        if not self._is_current(epoch, number):
            return False
        self._reported[epoch, number] = now
        for old in [made for made in self._reported if made < (epoch, number - 4)]:
            del self._reported[old]
        return True

    def lend(self, project: str, epoch: int, number: int, part: float, own: float, until: int) -> float:
        """Promise to leave `part` of the node's own part unused, or all that is left of it if that is less. Returns the
        part promised.
        """
        if not self._is_current(epoch, number):
            return 0.0
        account = self._accounts.setdefault(project, _Account())
        promised = max(0.0, min(part, own - account.sum_lent(but=epoch)))
        if promised > 0:
            account.promises[epoch, number] = promised, until
        self._tidy(project)
        return promised

    def keep(self, project: str, epoch: int, number: int, most: float) -> float:
        """Give up borrowed parts beyond `most`. Returns the part that is still borrowed."""
        current, account = self._is_current(epoch, number), self._accounts.get(project)
        if account is None:
            return 0.0
        if current:
            account.borrowed = min(account.borrowed, most)
        borrowed = account.borrowed
        self._tidy(project)
        return borrowed

    def grant(self, project: str, epoch: int, number: int, part: float, duration: int, now: int) -> bool:
        """Borrow `part` in place of what was borrowed. Returns whether that is a change."""
        reported = self._reported.get((epoch, number))
        if reported is None or not self._is_current(epoch, number):
            return False
        until = reported + int(duration * (1 - MARGIN))
        if until <= now:
            return False
        account = self._accounts.setdefault(project, _Account())
        changed = account.borrowed != part
        account.borrowed, account.until = part, until
        self._tidy(project)
        return changed

    def drop(self, project: str) -> None:
        """Stop borrowing, whatever was granted."""
        account = self._accounts.get(project)
        if account is not None:
            account.borrowed = 0.0
        self._tidy(project)

    def free(self, project: str, epoch: int, number: int) -> bool:
        """Drop promises of earlier rounds that the leader no longer needs. Returns whether there were any."""
        account = self._accounts.get(project)
        if account is None:
            return False
        old = [made for made in account.promises if made[0] == epoch and made[1] < number]
        for made in old:
            del account.promises[made]
        self._tidy(project)
        return bool(old)

    def _is_current(self, epoch: int, number: int) -> bool:
        """Whether the message is from the newest leader and round seen, or newer: a late message must not undo a later
        one.
        """
        current = (epoch, number) >= self._newest
        self._newest = max(self._newest, (epoch, number))
        return current

    # ---- expiry

    def expire(self, now: int) -> list[str]:
        """Drop expired loans, and return the projects concerned."""
        changed = [project for project, account in self._accounts.items() if account.expire(now)]
        for project in changed:
            self._tidy(project)
        return changed

    def ends(self) -> int | None:
        """The time at which the next loan expires, None if there is none."""
        return min((account.ends for account in self._accounts.values()), default=None)

    def _tidy(self, project: str) -> None:
        account = self._accounts.get(project)
        if account is not None and not account.promises and not account.borrowed:
            del self._accounts[project]

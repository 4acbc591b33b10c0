"""What a node has lent of its parts of topics to other nodes, and what it has borrowed (docs/adr/0019). Pure.

A loan is safe if whoever lends stops using it before whoever borrows begins, and begins again only after the other has
stopped. Nobody's clock is compared with another's:

- A lender promises at instant a (its own clock) to leave a part unused until a + duration. It promises only as long as
  it trusts its lease: should it die, its groups have no new owner before the promise has run out.
- A borrower may use a grant until r + duration, where r (its own clock) is when it sent the report that the grant
  answers. The leader had that report before it asked for the promise, so r was before a, and the grant ends first.
- Within an epoch the leader sees to it that grants never exceed promises (`evenlane.quota.lending.rounds`). Promises to
  leaders of different epochs add up; of one leader's the largest holds.

Times are monotonic ns of this node, parts are fractions of a topic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MARGIN = 0.1
"""The share of a loan's duration by which a borrower ends early: what it has handed out is still to start."""


@dataclass(slots=True)
class _Account:
    """A topic's. `promises`: (epoch, round) -> (part, until)."""

    promises: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    borrowed: float = 0.0
    until: int = 0

    def expire(self, now: int) -> bool:
        """Whether anything ran out."""
        over = [made for made, (_, until) in self.promises.items() if until <= now]
        for made in over:
            del self.promises[made]
        ended = self.borrowed > 0 and self.until <= now
        if ended:
            self.borrowed = 0.0
        return bool(over) or ended

    def lent(self, but: int | None = None) -> float:
        """To all leaders, or all but one; to each the most that it was promised."""
        most: dict[int, float] = {}
        for (epoch, _), (part, _until) in self.promises.items():
            if epoch != but:
                most[epoch] = max(part, most.get(epoch, 0.0))
        return sum(most.values())

    @property
    def ends(self) -> int:
        """When the next of it runs out."""
        untils = [until for _, until in self.promises.values()]
        return min(untils + ([self.until] if self.borrowed else []), default=0)


class Loans:
    """What isn't from the leader and round heard of last is passed over: it was long under way."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._heard = (0, 0)
        self._reported: dict[tuple[int, int], int] = {}

    # ---- how things stand

    def part(self, project: str, own: float) -> float:
        """What the node may use, if `own` is what its groups bring along."""
        account = self._accounts.get(project)
        return own if account is None else max(0.0, own - account.lent()) + account.borrowed

    def standing(self, project: str) -> tuple[float, float]:
        """What it has lent, and what it has borrowed."""
        account = self._accounts.get(project)
        return (0.0, 0.0) if account is None else (account.lent(), account.borrowed)

    def owing(self, project: str, own: float, now: int) -> int:
        """For how many ns more others may use of it what the node no longer owns: 0 if none is."""
        account = self._accounts.get(project)
        if account is None or account.lent() <= own:
            return 0
        return max((until for _, until in account.promises.values()), default=now) - now

    def lent(self) -> dict[str, int]:
        """The projects of which anything is lent, and when the last promise runs out."""
        return {
            project: max(until for _, until in account.promises.values())
            for project, account in self._accounts.items()
            if account.promises
        }

    def lent_until(self) -> int:
        """When the last promise runs out, 0 if there is none."""
        return max(self.lent().values(), default=0)

    @property
    def projects(self) -> Iterable[str]:
        """Those with anything lent or borrowed."""
        return self._accounts.keys()

    # ---- what the leader says

    def reports(self, epoch: int, number: int, now: int) -> bool:
        """The leader has asked in this round, and is answered now; False if a newer one has been heard of."""
        if not self._hear(epoch, number):
            return False
        self._reported[epoch, number] = now
        for old in [made for made in self._reported if made < (epoch, number - 4)]:
            del self._reported[old]
        return True

    def lend(self, project: str, epoch: int, number: int, part: float, own: float, until: int) -> float:
        """Promise to leave so much of the own part unused, or as much of it as there is; returns what is promised."""
        if not self._hear(epoch, number):
            return 0.0
        account = self._accounts.setdefault(project, _Account())
        promised = max(0.0, min(part, own - account.lent(but=epoch)))
        if promised > 0:
            account.promises[epoch, number] = promised, until
        self._tidy(project)
        return promised

    def keep(self, project: str, epoch: int, number: int, most: float) -> float:
        """Give up what is borrowed beyond `most`; returns what is borrowed still."""
        current, account = self._hear(epoch, number), self._accounts.get(project)
        if account is None:
            return 0.0
        if current:
            account.borrowed = min(account.borrowed, most)
        borrowed = account.borrowed
        self._tidy(project)
        return borrowed

    def grant(self, project: str, epoch: int, number: int, part: float, duration: int, now: int) -> bool:
        """Borrow so much in place of what was borrowed; whether that changed anything."""
        reported = self._reported.get((epoch, number))
        if reported is None or not self._hear(epoch, number):
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
        """Borrow no more, whatever was granted."""
        account = self._accounts.get(project)
        if account is not None:
            account.borrowed = 0.0
        self._tidy(project)

    def free(self, project: str, epoch: int, number: int) -> bool:
        """The leader needs its promises of earlier rounds no more; whether there was any."""
        account = self._accounts.get(project)
        if account is None:
            return False
        old = [made for made in account.promises if made[0] == epoch and made[1] < number]
        for made in old:
            del account.promises[made]
        self._tidy(project)
        return bool(old)

    def _hear(self, epoch: int, number: int) -> bool:
        """Whether it is of the leader and round heard of last, or newer: what comes late must not undo what was said
        since.
        """
        current = (epoch, number) >= self._heard
        self._heard = max(self._heard, (epoch, number))
        return current

    # ---- time

    def expire(self, now: int) -> list[str]:
        """The projects of which something has run out."""
        changed = [project for project, account in self._accounts.items() if account.expire(now)]
        for project in changed:
            self._tidy(project)
        return changed

    def ends(self) -> int | None:
        """When the next loan runs out, None if there is none."""
        return min((account.ends for account in self._accounts.values()), default=None)

    def _tidy(self, project: str) -> None:
        account = self._accounts.get(project)
        if account is not None and not account.promises and not account.borrowed:
            del self._accounts[project]

"""A node's part in ownership: which partitions it acquires, opens, closes and releases, and when. Pure.

Events are reported by calls (a plan, an owner key seen or gone, an answer); each call returns the actions to carry out.
These rules keep two owners apart:

- A node acquires a partition only after its owner key was *seen* to be absent, never because time has passed. The
  transaction then requires that the key is still absent, and that the node's plan is still the one that demanded it.
- The key's create-revision distinguishes owners; it is the epoch here, whatever base is added to it outside
  (`evenlane.engine.cluster.ownership.epochs`). A key under the node's own lease whose transaction was never answered
  (the answer was lost) is adopted when it is seen; one of an epoch given up before is not.
- If a key vanishes, or becomes another node's, while the node works under it, the work ends at once.

Partitions that a plan takes away leave step by step (`evenlane.ring.membership.departures`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.membership.departures import Departures

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

AGAIN_NS = 200_000_000  # before a request without an answer, or refused without a visible reason, is repeated


class Phase(StrEnum):
    """The state of the node, for people."""

    FENCED = "fenced"  # its lease can't be trusted: no message starts
    RELEASING = "releasing"
    WAITING = "waiting for release"
    OWNING = "owning"
    STANDBY = "standby"
    JOINING = "joining"  # no plan names it yet


class Stage(Enum):
    """The progress of a partition."""

    ASKING = 1  # for the owner key
    OPENING = 2  # the key is ours; the takeover is under way
    OPEN = 3
    CLOSING = 4  # no message starts any more; results are being settled
    RELEASING = 5  # the key is being deleted


_SERVED = frozenset({Stage.OPENING, Stage.OPEN, Stage.CLOSING})


class Acquire(NamedTuple):
    """Create the owner key if there is none and the node's plan key still has this mod-revision."""

    partition: int
    plan_revision: int


class Open(NamedTuple):
    """Take the partition over, and write the owner key's value again, now with the epoch, which wasn't known before."""

    partition: int
    epoch: int


class Close(NamedTuple):
    """Start no more messages of the partition, from this moment on; then settle the results."""

    partition: int
    epoch: int


class Release(NamedTuple):
    """Delete the owner key if it is still of this epoch."""

    partition: int
    epoch: int


class Mark(NamedTuple):
    """Write the owner key's value again, with the epoch and under the node's lease, if it is still of this epoch and
    under no lease.
    """

    partition: int
    epoch: int


class Clear(NamedTuple):
    """Delete the owner key if it still has this mod-revision: it is under no lease, and would stay for ever."""

    partition: int
    revision: int


class Drop(NamedTuple):
    """The partition isn't ours any more: start nothing, settle nothing."""

    partition: int
    epoch: int


class Confirm(NamedTuple):
    """Report that this generation has been carried out."""

    generation: int


Action = Acquire | Clear | Mark | Open | Close | Release | Drop | Confirm


class Owner(NamedTuple):
    """An owner key as seen: its create-revision, the lease that it is attached to, its mod-revision."""

    epoch: int
    lease: int
    revision: int = 0


@dataclass(slots=True)
class _Part:
    stage: Stage
    epoch: int = 0
    again_at: int = 0  # when to repeat the request; 0: an answer is awaited


@dataclass
class Member:
    """One session of a node: from the grant of its lease to its end. Times are monotonic ns. An owner key that has been
    under no lease for `patience` is cleared: a living owner would have put it back under its lease, or can't trust that
    lease any more.

    Invariants:
    - `_parts` has the partitions whose owner key is this node's, or is being acquired; `_owners` all owner keys as last
      seen.
    - A partition is in `_todo` unless it is wanted and open, or neither wanted nor ours. `done` follows `generation`
      once `_todo` is empty.
    - `_departures` has partitions that are open and not wanted, until they close.
    - `_abandoned` has the last epoch of each partition that was ours and no longer is; a late answer for it is ignored.
    - A timer in `_timers` is valid if it equals `again_at` or the time in `_detached` of its partition; others are
      stale.

    An event costs at most O(log partitions), except plans and listings, which are processed as a whole.
    """

    lease: int
    trusted_until: int
    patience: int = 30_000_000_000
    generation: int = 0
    plan_revision: int = 0
    wanted: frozenset[int] = frozenset()
    done: int = 0
    stale_plans: int = 0
    leaving: bool = False
    serving: bool = True  # without it, unwanted partitions close at once: waiting for their turn would help nobody
    knows_owners: bool = False
    _listed: int = 0  # the revision of the last listing
    _owners: dict[int, Owner] = field(default_factory=dict)
    _parts: dict[int, _Part] = field(default_factory=dict)
    _abandoned: dict[int, int] = field(default_factory=dict)  # partition -> epoch
    _departures: Departures = field(default_factory=Departures)
    _todo: set[int] = field(default_factory=set)
    _detached: dict[int, int] = field(default_factory=dict)  # owner keys under no lease, and when to clear them
    _timers: list[tuple[int, int]] = field(default_factory=list)  # (instant, partition)

    # ---- queries

    @property
    def owned(self) -> list[int]:
        """The partitions that are open, in order."""
        return sorted(p for p, part in self._parts.items() if part.stage is Stage.OPEN)

    @property
    def epochs(self) -> dict[int, int]:
        """The epoch of each partition that is this node's: open, being opened, or not released yet."""
        return {p: part.epoch for p, part in self._parts.items() if part.stage is not Stage.ASKING}

    @property
    def busy(self) -> bool:
        """Whether some partition is neither open nor given up."""
        return any(p in self._parts for p in self._todo)

    @property
    def expects_more(self) -> bool:
        """Whether the plan gives the node a partition that isn't open."""
        return bool(self.wanted) and any(p in self.wanted for p in self._todo)

    @property
    def known(self) -> frozenset[int]:
        """The partitions whose owner keys may be this node's: being acquired, owned, or not released yet.
        Thread-safe.
        """
        return frozenset(self._parts)

    @property
    def served(self) -> frozenset[int]:
        """The partitions whose owner keys are this node's, and exist unless etcd has lost them. Thread-safe."""
        parts = self._parts.copy()
        return frozenset(p for p, part in parts.items() if part.stage in _SERVED)

    def phase(self, now: int) -> Phase:
        stages = {part.stage for part in self._parts.values()}
        if now >= self.trusted_until:
            return Phase.FENCED
        if self._departures or stages & {Stage.CLOSING, Stage.RELEASING}:
            return Phase.RELEASING
        if self.generation == 0:
            return Phase.JOINING
        if self.wanted - set(self.owned):
            return Phase.WAITING
        return Phase.OWNING if self.wanted else Phase.STANDBY

    def wake_at(self) -> int | None:
        """The next time at which `tick` has something to do; None if there is none."""
        due = (self._next_timer(), self._departures.wake_at())
        return min((at for at in due if at is not None), default=None)

    def _next_timer(self) -> int | None:
        while self._timers and not self._is_due(*self._timers[0]):
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _is_due(self, at: int, partition: int) -> bool:
        """Whether a timer is still valid."""
        part = self._parts.get(partition)
        return (part is not None and part.again_at == at) or self._detached.get(partition) == at

    # ---- the lease

    def renewed(self, trusted_until: int, now: int) -> list[Action]:
        self.trusted_until = trusted_until
        return self._decide(now, list(self._todo))

    # ---- the plan

    def planned(self, revision: int, generation: int, partitions: Collection[int], now: int) -> list[Action]:
        """The node's plan key was put. A plan of an older generation than the present one is ignored (Z5)."""
        if generation < self.generation:
            self.stale_plans += 1
            return []
        self.plan_revision, self.generation = revision, generation
        return self._want(frozenset() if self.leaving else frozenset(partitions), now)

    def leave(self, now: int) -> list[Action]:
        """Want no more partitions, whatever is planned."""
        self.leaving = True
        return self._want(frozenset(), now)

    def _want(self, partitions: frozenset[int], now: int) -> list[Action]:
        before, self.wanted = self.wanted, partitions
        self._departures.expect(sum(part.stage is Stage.OPEN for p, part in self._parts.items() if p not in partitions))
        return self._decide(now, sorted((before ^ partitions) | self._todo))

    # ---- owner keys, as the watch reports them

    def listed(self, revision: int, owners: Mapping[int, Owner], now: int) -> list[Action]:
        """All owner keys, as of this revision."""
        self.knows_owners, self._listed = True, revision
        gone = [p for p in {*self._owners, *self._parts} if p not in owners]
        self._owners = {}
        actions = [action for p in gone for action in self._gone(p, revision)]
        for partition, owner in owners.items():
            actions += self._seen(partition, owner, now)
        return actions + self._decide(now, sorted(self.wanted | self._todo | self._parts.keys()))

    def owner_seen(self, partition: int, owner: Owner, now: int) -> list[Action]:
        return self._seen(partition, owner, now) + self._decide(now, (partition,))

    def owner_gone(self, partition: int, revision: int, now: int) -> list[Action]:
        """The owner key was deleted at this revision."""
        return self._gone(partition, revision) + self._decide(now, (partition,))

    def _seen(self, partition: int, owner: Owner, now: int) -> list[Action]:
        self._owners[partition] = owner
        self._attach(partition, owner, now)
        if owner.lease != self.lease and owner.revision > owner.epoch:
            self._departures.arrived(partition)  # (an owner writes its key again once it serves)
        part = self._parts.get(partition)
        if owner.lease == self.lease:
            if owner.epoch > self._abandoned.get(partition, 0) and (part is None or part.stage is Stage.ASKING):
                return self._ours(partition, owner.epoch)
            if part is not None and owner.epoch < part.epoch <= self._listed:
                return self._lost(partition, part)  # etcd was rolled back to an earlier claim, and has advanced since
        elif part is not None and part.epoch == owner.epoch and not owner.lease:
            if part.stage is Stage.RELEASING:
                return []  # the release will delete it
            return [Mark(partition, part.epoch)]  # detached from the lease: our death would go unnoticed
        elif part is not None and 0 < part.epoch <= owner.epoch:  # epochs can be equal after an etcd rollback
            return self._lost(partition, part)
        return []

    def _attach(self, partition: int, owner: Owner, now: int) -> None:
        """Note when a key was first seen under no lease."""
        if owner.lease:
            self._detached.pop(partition, None)
        elif partition not in self._detached:
            self._detached[partition] = now + self.patience
            heappush(self._timers, (now + self.patience, partition))

    def _ours(self, partition: int, epoch: int) -> list[Action]:
        self._parts[partition] = _Part(Stage.OPENING, epoch)
        return [Open(partition, epoch)]

    def _gone(self, partition: int, revision: int) -> list[Action]:
        self._owners.pop(partition, None)
        self._detached.pop(partition, None)
        part = self._parts.get(partition)
        if part is None or part.stage is Stage.ASKING or revision <= part.epoch:
            return []  # (a listing or deletion from before our own key doesn't concern it)
        if part.stage is Stage.RELEASING:
            self._give_up(partition, part)
            return []
        return self._lost(partition, part)

    def _lost(self, partition: int, part: _Part) -> list[Action]:
        self._give_up(partition, part)
        return [Drop(partition, part.epoch)]

    def _give_up(self, partition: int, part: _Part) -> None:
        del self._parts[partition]
        self._departures.discard(partition)
        self._abandoned[partition] = part.epoch

    # ---- answers

    def acquired(self, partition: int, epoch: int, now: int) -> list[Action]:
        """The answer to the transaction of `Acquire`; epoch 0: refused."""
        part = self._parts.get(partition)
        if part is None or part.stage is not Stage.ASKING or 0 < epoch <= self._abandoned.get(partition, 0):
            return []  # the watch was faster, or this answers an earlier request
        if epoch == 0:  # the key or the plan has changed; the watch reports it, or has done so already
            self._again(partition, part, now)
            return []
        owner = self._owners.get(partition)
        if epoch <= self._listed and (owner is None or owner.epoch != epoch):
            part.epoch = epoch  # a newer listing came before this answer: the key is gone, and won't be reported again
            self._give_up(partition, part)
            return self._decide(now, (partition,))
        return [*self._ours(partition, epoch), *self._decide(now, (partition,))]

    def unsure(self, partition: int, now: int) -> list[Action]:
        """No answer came: whether the key was created is unknown."""
        part = self._parts.get(partition)
        if part is not None and part.stage is Stage.ASKING:
            self._again(partition, part, now)
        return []

    def _again(self, partition: int, part: _Part, now: int) -> None:
        part.again_at = now + AGAIN_NS
        heappush(self._timers, (part.again_at, partition))

    def opened(self, partition: int, epoch: int, now: int) -> list[Action]:
        part = self._held(partition, epoch)
        if part is not None and part.stage is Stage.OPENING:
            part.stage = Stage.OPEN
        return self._decide(now, (partition,))

    def withdrawn(self, partition: int, epoch: int) -> list[Action]:
        """The partition can't be taken over under this epoch: release the key, and acquire it again."""
        part = self._held(partition, epoch)
        if part is None or part.stage is not Stage.OPENING:
            return []
        part.stage = Stage.RELEASING
        return [Release(partition, epoch)]

    def closed(self, partition: int, epoch: int) -> list[Action]:
        part = self._held(partition, epoch)
        if part is None or part.stage is not Stage.CLOSING:
            return []
        part.stage = Stage.RELEASING
        return [Release(partition, epoch)]

    def released(self, partition: int, epoch: int, now: int) -> list[Action]:
        """The transaction was answered, either way: the key isn't ours any more."""
        part = self._held(partition, epoch)
        if part is not None and part.stage is Stage.RELEASING:
            self._give_up(partition, part)
        return self._decide(now, (partition,))

    def tick(self, now: int) -> list[Action]:
        """Repeat requests that had no answer or were refused, clear keys under no lease, close partitions whose turn it
        is.
        """
        actions = self._decide(now, ())
        while (due := self._next_timer()) is not None and due <= now:
            partition = heappop(self._timers)[1]
            part = self._parts.get(partition)
            if part is not None and part.again_at == due:
                del self._parts[partition]
            elif partition in self.wanted and part is None:
                actions.append(Clear(partition, self._owners[partition].revision))
            if self._detached.get(partition) == due:
                self._detached[partition] = now + self.patience
                heappush(self._timers, (now + self.patience, partition))
            actions += self._decide(now, (partition,))
        return actions

    def _held(self, partition: int, epoch: int) -> _Part | None:
        part = self._parts.get(partition)
        return part if part is not None and part.epoch == epoch else None

    # ---- the decision

    def _decide(self, now: int, partitions: Iterable[int]) -> list[Action]:
        """The actions that follow from a report about these partitions."""
        actions = [action for partition in partitions for action in self._next(partition, now)]
        actions = [*self._depart(now), *actions]
        if self.done < self.generation and not self._todo:
            self.done = self.generation
            actions.append(Confirm(self.generation))
        return actions

    def _next(self, partition: int, now: int) -> list[Action]:
        actions: list[Action] = []
        part, wanted = self._parts.get(partition), partition in self.wanted
        if part is None and wanted and partition not in self._owners and self._may_ask(now):
            part = self._parts[partition] = _Part(Stage.ASKING)
            actions.append(Acquire(partition, self.plan_revision))
        elif part is not None and not wanted and part.stage is Stage.OPENING:
            actions.append(self._close(partition, part))
        elif part is not None and not wanted and part.stage is Stage.OPEN:
            self._departures.add(partition)
        elif wanted:
            self._departures.discard(partition)
        if wanted == (part is not None and part.stage is Stage.OPEN) and (wanted or part is None):
            self._todo.discard(partition)
        else:
            self._todo.add(partition)
        return actions

    def _depart(self, now: int) -> list[Action]:
        """Close the partitions whose turn it is; all of them if the node leaves or can't serve."""
        going = self._departures.take(now, everything=self.leaving or not self.serving)
        return [self._close(partition, self._parts[partition]) for partition in going]

    @staticmethod
    def _close(partition: int, part: _Part) -> Close:
        part.stage = Stage.CLOSING
        return Close(partition, part.epoch)

    def _may_ask(self, now: int) -> bool:
        return self.knows_owners and now < self.trusted_until

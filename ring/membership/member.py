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
from typing import TYPE_CHECKING

from evenlane.ring.membership.actions import Acquire, Clear, Close, ConfirmGeneration, Drop, Mark, Open, Release
from evenlane.ring.membership.claims import Claim, Claims, ClaimStage
from evenlane.ring.membership.departures import Departures
from evenlane.ring.membership.node_plan import NodePlan
from evenlane.ring.membership.owner_keys import KnownOwnerKeys
from evenlane.ring.membership.phase import Phase, phase_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.ring.membership.actions import Action
    from evenlane.ring.membership.owner_keys import Owner


@dataclass
class Member:
    """One session of a node: from the grant of its lease to its end. Times are monotonic ns. An owner key that has been
    under no lease for `clear_after` is cleared.

    Invariants:
    - `_departures` has partitions that are open and not desired, until they close.
    - `_to_reopen` has partitions whose key may have been created before `reopen`, without this node knowing it.

    An event costs at most O(log partitions), except plans and listings, which are processed as a whole.
    """

    lease: int
    trusted_until: int
    clear_after: int = 30_000_000_000
    plan: NodePlan = field(default_factory=NodePlan)
    leaving: bool = False
    serving: bool = True  # without it, partitions to release close at once: waiting for their turn would help nobody
    knows_owners: bool = False
    _listed: int = 0  # the revision of the last listing
    _claims: Claims = field(default_factory=Claims)
    _departures: Departures = field(default_factory=Departures)
    _to_reopen: set[int] = field(default_factory=set)
    _owners: KnownOwnerKeys = field(init=False)

    def __post_init__(self) -> None:
        self._owners = KnownOwnerKeys(self.clear_after)

    # ---- queries

    @property
    def owned(self) -> list[int]:
        """The partitions that are open, in order."""
        return sorted(self._claims.open())

    @property
    def epochs(self) -> dict[int, int]:
        """The epoch of each partition that is this node's: open, being opened, or not released yet."""
        return self._claims.epochs()

    @property
    def is_busy(self) -> bool:
        """Whether some partition is neither open nor given up."""
        return any(p in self._claims for p in self.plan.pending)

    @property
    def known(self) -> frozenset[int]:
        """The partitions whose owner keys may be this node's: acquired or not released yet. Thread-safe."""
        return frozenset(self._claims)

    @property
    def served(self) -> frozenset[int]:
        """The partitions whose owner keys are this node's, and exist unless etcd has lost them. Thread-safe."""
        return self._claims.list_served()

    def phase(self, now: int) -> Phase:
        if now >= self.trusted_until:
            return Phase.FENCED
        return phase_of(self.plan.generation, self.plan.desired, self._claims, departs=bool(self._departures))

    def wake_at(self) -> int | None:
        """The next time at which `tick` has something to do; None if there is none."""
        timer, departure = self._next_timer(), self._departures.wake_at()
        return min((at for at in (timer and timer[0], departure) if at is not None), default=None)

    def _next_timer(self) -> tuple[int, int] | None:
        """The next instant that concerns an owner key, and its partition."""
        timers = (self._claims.next_retry(), self._owners.next_clear())
        return min((timer for timer in timers if timer is not None), default=None)

    # ---- the lease and the plan

    def on_renewed(self, trusted_until: int, now: int) -> list[Action]:
        self.trusted_until = trusted_until
        return self._decide(now, list(self.plan.pending))

    def on_plan(self, revision: int, generation: int, partitions: Collection[int], now: int) -> list[Action]:
        """The node's plan key was put. A plan of an older generation than the present one is ignored (Z5)."""
        if not self.plan.accept(revision, generation):
            return []
        return self._want(frozenset() if self.leaving else frozenset(partitions), now)

    def leave(self, now: int) -> list[Action]:
        """Release all partitions, whatever is planned."""
        self.leaving = True
        return self._want(frozenset(), now)

    def reopen(self) -> list[Action]:
        """Release all partitions, and acquire those again that the plan gives this node: they must be taken over
        again, by an owner that knows what has changed.
        """
        closing: list[Action] = []
        for partition, claim in self._claims.items():
            if claim.stage in (ClaimStage.OPENING, ClaimStage.OPEN):
                closing.append(self._close_again(partition, claim))
            elif claim.stage is ClaimStage.ASKING:
                self._to_reopen.add(partition)
        return closing

    def _close_again(self, partition: int, claim: Claim) -> Action:
        self._departures.discard(partition)
        closing = self._close(partition, claim)
        self.plan.note(partition, claim)
        return closing

    def _want(self, partitions: frozenset[int], now: int) -> list[Action]:
        changed = self.plan.want(partitions)
        self._departures.expect(len(self._claims.open() - partitions))
        return self._decide(now, changed)

    # ---- owner keys, as the watch reports them

    def on_listing(self, revision: int, owners: Mapping[int, Owner], now: int) -> list[Action]:
        """All owner keys, as of this revision."""
        self.knows_owners, self._listed = True, revision
        gone = [p for p in {*self._owners, *self._claims} if p not in owners]
        self._owners.clear()
        actions = [action for p in gone for action in self._on_owner_gone(p, revision)]
        for partition, owner in owners.items():
            actions += self._on_owner(partition, owner, now)
        return actions + self._decide(now, sorted(self.plan.desired | self.plan.pending | self._claims.keys()))

    def on_owner_put(self, partition: int, owner: Owner, now: int) -> list[Action]:
        return self._on_owner(partition, owner, now) + self._decide(now, (partition,))

    def on_owner_delete(self, partition: int, revision: int, now: int) -> list[Action]:
        """The owner key was deleted at this revision."""
        return self._on_owner_gone(partition, revision) + self._decide(now, (partition,))

    def _on_owner(self, partition: int, owner: Owner, now: int) -> list[Action]:
        self._owners.see(partition, owner, now)
        if owner.lease != self.lease and owner.revision > owner.epoch:
            self._departures.note_arrival(partition)  # (an owner writes its key again once it serves)
        claim = self._claims.get(partition)
        if owner.lease == self.lease:
            if not self._claims.has_ended(partition, owner.epoch) and (
                claim is None or claim.stage is ClaimStage.ASKING
            ):
                return self._ours(partition, owner.epoch)
            if claim is not None and owner.epoch < claim.epoch <= self._listed:
                return self._on_lost(
                    partition, claim
                )  # etcd was rolled back to an earlier claim, and has advanced since
        elif claim is not None and claim.epoch == owner.epoch and not owner.lease:
            if claim.stage is ClaimStage.RELEASING:
                return []  # the release will delete it
            return [Mark(partition, claim.epoch)]  # detached from the lease: our death would go unnoticed
        elif claim is not None and 0 < claim.epoch <= owner.epoch:  # epochs can be equal after an etcd rollback
            return self._on_lost(partition, claim)
        return []

    def _ours(self, partition: int, epoch: int) -> list[Action]:
        self._claims[partition] = claim = Claim(ClaimStage.OPENING, epoch)
        if partition not in self._to_reopen:
            return [Open(partition, epoch)]
        self._to_reopen.discard(partition)
        return [Open(partition, epoch), self._close_again(partition, claim)]

    def _on_owner_gone(self, partition: int, revision: int) -> list[Action]:
        self._owners.remove(partition)
        claim = self._claims.get(partition)
        if claim is None or claim.stage is ClaimStage.ASKING or revision <= claim.epoch:
            return []  # (a listing or deletion from before our own key doesn't concern it)
        if claim.stage is ClaimStage.RELEASING:
            self._end(partition)
            return []
        return self._on_lost(partition, claim)

    def _on_lost(self, partition: int, claim: Claim) -> list[Action]:
        self._end(partition)
        return [Drop(partition, claim.epoch)]

    def _end(self, partition: int) -> None:
        self._claims.end(partition)
        self._departures.discard(partition)

    # ---- answers

    def on_acquired(self, partition: int, epoch: int, now: int) -> list[Action]:
        """The answer to the transaction of `Acquire`; epoch 0: refused."""
        claim = self._claims.find_asking(partition)
        if claim is None or (epoch and self._claims.has_ended(partition, epoch)):
            return []  # the watch was faster, or this answers an earlier request
        if epoch == 0:  # the key or the plan has changed; the watch reports it, or has done so already
            self._claims.retry(partition, now)
            return []
        owner = self._owners.get(partition)
        if epoch <= self._listed and (owner is None or owner.epoch != epoch):
            claim.epoch = epoch  # a newer listing came before this answer: the key is gone, and won't be reported again
            self._end(partition)
            return self._decide(now, (partition,))
        return [*self._ours(partition, epoch), *self._decide(now, (partition,))]

    def unsure(self, partition: int, now: int) -> list[Action]:
        """No answer came: whether the key was created is unknown."""
        if self._claims.find_asking(partition) is not None:
            self._claims.retry(partition, now)
        return []

    def on_opened(self, partition: int, epoch: int, now: int) -> list[Action]:
        claim = self._claims.find_of_epoch(partition, epoch)
        if claim is not None and claim.stage is ClaimStage.OPENING:
            claim.stage = ClaimStage.OPEN
        return self._decide(now, (partition,))

    def on_withdrawn(self, partition: int, epoch: int) -> list[Action]:
        """The partition can't be taken over under this epoch: release the key, and acquire it again."""
        return self._release(partition, epoch, ClaimStage.OPENING)

    def on_closed(self, partition: int, epoch: int) -> list[Action]:
        return self._release(partition, epoch, ClaimStage.CLOSING)

    def _release(self, partition: int, epoch: int, stage: ClaimStage) -> list[Action]:
        claim = self._claims.find_of_epoch(partition, epoch)
        if claim is None or claim.stage is not stage:
            return []
        claim.stage = ClaimStage.RELEASING
        return [Release(partition, epoch)]

    def on_released(self, partition: int, epoch: int, now: int) -> list[Action]:
        """The transaction was answered, either way: the key isn't ours any more."""
        claim = self._claims.find_of_epoch(partition, epoch)
        if claim is not None and claim.stage is ClaimStage.RELEASING:
            self._end(partition)
        return self._decide(now, (partition,))

    def tick(self, now: int) -> list[Action]:
        """Repeat requests that failed, clear keys under no lease, and close partitions whose turn it is."""
        actions = self._decide(now, ())
        while (timer := self._next_timer()) is not None and timer[0] <= now:
            partition = timer[1]
            claim = self._claims.get(partition)
            if self._claims.next_retry() == timer:
                del self._claims[partition]
            elif partition in self.plan.desired and claim is None:
                actions.append(Clear(partition, self._owners[partition].revision))
            if self._owners.next_clear() == timer:
                self._owners.clear_later(partition, now)
            actions += self._decide(now, (partition,))
        return actions

    # ---- the decision

    def _decide(self, now: int, partitions: Iterable[int]) -> list[Action]:
        """The actions that follow from a report about these partitions."""
        actions = [action for partition in partitions for action in self._next(partition, now)]
        actions = [*self._depart(now), *actions]
        if self.plan.complete():
            actions.append(ConfirmGeneration(self.plan.generation))
        return actions

    def _next(self, partition: int, now: int) -> list[Action]:
        actions: list[Action] = []
        may_ask = self.knows_owners and now < self.trusted_until
        claim, desired = self._claims.get(partition), partition in self.plan.desired
        if claim is None and desired and partition not in self._owners and may_ask:
            claim = self._claims[partition] = Claim(ClaimStage.ASKING)
            actions.append(Acquire(partition, self.plan.revision))
        elif claim is not None and not desired and claim.stage is ClaimStage.OPENING:
            actions.append(self._close(partition, claim))
        elif claim is not None and not desired and claim.stage is ClaimStage.OPEN:
            self._departures.add(partition)
        elif desired:
            self._departures.discard(partition)
        self.plan.note(partition, claim)
        return actions

    def _depart(self, now: int) -> list[Action]:
        """Close the partitions whose turn it is; all of them if the node leaves or can't serve."""
        going = self._departures.take_due(now, everything=self.leaving or not self.serving)
        return [self._close(partition, self._claims[partition]) for partition in going]

    @staticmethod
    def _close(partition: int, claim: Claim) -> Close:
        claim.stage = ClaimStage.CLOSING
        return Close(partition, claim.epoch)

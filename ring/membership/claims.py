"""The partitions whose owner key is this node's, or is being acquired, and the progress of each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush

RETRY_NS = 200_000_000  # before a request without an answer, or refused without a visible reason, is repeated


class ClaimStage(Enum):
    """The progress of a partition."""

    ASKING = 1  # for the owner key
    OPENING = 2  # the key is ours; the takeover is under way
    OPEN = 3
    CLOSING = 4  # no message starts any more; results are being settled
    RELEASING = 5  # the key is being deleted


_SERVED = frozenset({ClaimStage.OPENING, ClaimStage.OPEN, ClaimStage.CLOSING})


@dataclass(slots=True)
class Claim:
    stage: ClaimStage
    epoch: int = 0
    retry_at: int = 0  # when to repeat the request; 0: an answer is awaited


class Claims(dict[int, Claim]):
    """The claims by partition. Times are monotonic ns.

    Invariants:
    - `_ended` has the last epoch of each partition that was ours and no longer is.
    - A timer in `_timers` is valid if it equals `retry_at` of its partition; others are stale.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ended: dict[int, int] = {}  # partition -> epoch
        self._timers: list[tuple[int, int]] = []  # (instant, partition)

    def open(self) -> set[int]:
        return {partition for partition, claim in self.items() if claim.stage is ClaimStage.OPEN}

    def epochs(self) -> dict[int, int]:
        """The epoch of each partition whose owner key is ours."""
        return {partition: claim.epoch for partition, claim in self.items() if claim.stage is not ClaimStage.ASKING}

    def list_served(self) -> frozenset[int]:
        """The partitions whose owner keys exist unless etcd has lost them. Thread-safe."""
        claims = self.copy()
        return frozenset(partition for partition, claim in claims.items() if claim.stage in _SERVED)

    def find_asking(self, partition: int) -> Claim | None:
        """The partition's claim if its owner key is being acquired."""
        claim = self.get(partition)
        return claim if claim is not None and claim.stage is ClaimStage.ASKING else None

    def find_of_epoch(self, partition: int, epoch: int) -> Claim | None:
        claim = self.get(partition)
        return claim if claim is not None and claim.epoch == epoch else None

    def has_ended(self, partition: int, epoch: int) -> bool:
        """Whether a claim of this epoch has ended already, so that a late answer for it means nothing."""
        return epoch <= self._ended.get(partition, 0)

    def end(self, partition: int) -> None:
        """The owner key isn't ours any more."""
        self._ended[partition] = self.pop(partition).epoch

    def retry(self, partition: int, now: int) -> None:
        """Schedule the next request for the owner key."""
        at = self[partition].retry_at = now + RETRY_NS
        heappush(self._timers, (at, partition))

    def next_retry(self) -> tuple[int, int] | None:
        """The next instant at which to repeat a request, and its partition."""
        while self._timers and not self._is_valid(*self._timers[0]):
            heappop(self._timers)
        return self._timers[0] if self._timers else None

    def _is_valid(self, at: int, partition: int) -> bool:
        claim = self.get(partition)
        return claim is not None and claim.retry_at == at

"""Mutants of the product, each with one defect: order, attempts, poison, pauses."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from evenlane.engine.core.lane.attempts import AttemptMarks
from evenlane.engine.core.queue.entry import MessageRef
from evenlane.engine.core.queue.key_order import KeyOrder
from evenlane.engine.node.eligibility.eligibility import Eligibility
from evenlane.engine.node.eligibility.pauses import TopicPauses
from evenlane.engine.node.eligibility.suspects import Suspects
from evenlane.engine.node.partitions import crash_suspects
from evenlane.engine.node.partitions.previous_owners import PreviousOwners
from tests.simulation.horizon_mutants import HORIZON_MUTANTS
from tests.simulation.mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.message.message import Message


@contextmanager
def _key_not_held_back() -> Iterator[None]:
    """A message starts although another one of its key runs."""
    real = KeyOrder.admit

    def admit(self: KeyOrder, key: str, place: MessageRef) -> bool:
        real(self, key, place)
        return True

    with patch.object(KeyOrder, "admit", admit):
        yield


@contextmanager
def _key_freed_before_the_retry() -> Iterator[None]:
    """A message that failed, and will be retried, no longer holds its key back."""
    real = Eligibility.try_again

    def try_again(self: Eligibility, message: Message, after_s: float) -> None:
        real(self, message, after_s)
        self.free(message.queue, MessageRef(*message.place))

    with patch.object(Eligibility, "try_again", try_again):
        yield


@contextmanager
def _attempts_not_logged() -> Iterator[None]:
    """The attempts of messages that keep their place in the lane are counted only in memory."""
    real = AttemptMarks.mark_failed

    def failed(self: AttemptMarks, *of: Any) -> None:
        unsynced = set(self.unsynced)
        real(self, *of)
        self.unsynced = unsynced

    with patch.object(AttemptMarks, "mark_failed", failed):
        yield


@contextmanager
def _deaths_not_counted() -> Iterator[None]:
    """No node reads the in-flight records."""
    with patch.object(crash_suspects, "list_in_flight", lambda *_: []):
        yield


@contextmanager
def _held_not_logged() -> Iterator[None]:
    """The settle log doesn't record what previous owners still handle: only the next owner knows, in memory."""
    with patch.object(AttemptMarks, "hold", lambda *_: None):
        yield


@contextmanager
def _sequences_trusted() -> Iterator[None]:
    """A sequence in an in-flight record is taken for the message that has it now."""
    with patch.object(crash_suspects, "_CLOCKS", 1 << 62):
        yield


@contextmanager
def _pauses_ignored() -> Iterator[None]:
    """A topic goes on although its handler asked for a pause."""
    with patch.object(TopicPauses, "begin", lambda *_: None):
        yield


@contextmanager
def _held_keys_not_kept() -> Iterator[None]:
    """After a handoff, a key goes on although the previous owner still handles a message of it."""

    async def keep_none(*_: object, **_named: object) -> None:
        pass

    with patch.object(PreviousOwners, "_keep_keys", keep_none):
        yield


@contextmanager
def _waiting_suspects_lost() -> Iterator[None]:
    """A suspect that had to wait for another one never starts."""

    def ended(self: Any, place: MessageRef) -> None:
        if self._running == place:
            self._running = None

    with patch.object(Suspects, "on_end", ended):
        yield


ATTEMPT_MUTANTS = {
    "key not held back": Mutant(_key_not_held_back, ("order",), 30),
    "key freed before the retry": Mutant(_key_freed_before_the_retry, ("order",), 30),
    "attempts not logged": Mutant(_attempts_not_logged, ("D",), 200),
    "deaths not counted": Mutant(_deaths_not_counted, ("poison",), 100, first=8),
    "held messages not logged": Mutant(_held_not_logged, ("poison",), 200, first=47),
    "sequences of records trusted": Mutant(_sequences_trusted, ("attempts",), 50, 304),
    "keys of held messages not kept": Mutant(_held_keys_not_kept, ("order",), 200),
    "waiting suspects lost": Mutant(_waiting_suspects_lost, ("L",), 200, first=8),
    "pauses ignored": Mutant(_pauses_ignored, ("pause",), 10, first=30),
    **HORIZON_MUTANTS,
}

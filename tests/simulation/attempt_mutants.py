"""The product with one thing wrong, each at one place: order, attempts, poison, pauses."""

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
    """A message goes out though another one of its key is out."""
    real = KeyOrder.admit

    def admit(self: KeyOrder, key: str, place: MessageRef) -> bool:
        real(self, key, place)
        return True

    with patch.object(KeyOrder, "admit", admit):
        yield


@contextmanager
def _key_freed_before_the_retry() -> Iterator[None]:
    """A message that has failed, and will be tried again, holds its key back no longer."""
    real = Eligibility.try_again

    def try_again(self: Eligibility, message: Message, after_s: float) -> None:
        real(self, message, after_s)
        self.free(message.queue, MessageRef(*message.place))

    with patch.object(Eligibility, "try_again", try_again):
        yield


@contextmanager
def _attempts_not_logged() -> Iterator[None]:
    """The attempts of what stays in its lane are counted in memory alone."""
    real = AttemptMarks.failed

    def failed(self: AttemptMarks, *of: Any) -> None:
        unsynced = set(self.unsynced)
        real(self, *of)
        self.unsynced = unsynced

    with patch.object(AttemptMarks, "failed", failed):
        yield


@contextmanager
def _deaths_not_counted() -> Iterator[None]:
    """Nobody reads the in-flight records."""
    with patch.object(crash_suspects, "list_in_flight", lambda *_: []):
        yield


@contextmanager
def _held_not_logged() -> Iterator[None]:
    """The log isn't told what former owners still handle: only the next owner knows, as long as it lives."""
    with patch.object(AttemptMarks, "hold", lambda *_: None):
        yield


@contextmanager
def _sequences_trusted() -> Iterator[None]:
    """What a sequence of an in-flight record names now is taken for what it named then."""
    with patch.object(crash_suspects, "_CLOCKS", 1 << 62):
        yield


@contextmanager
def _pauses_ignored() -> Iterator[None]:
    """A topic goes on though its handler has asked for a pause."""
    with patch.object(TopicPauses, "begin", lambda *_: None):
        yield


@contextmanager
def _held_keys_not_kept() -> Iterator[None]:
    """After a hand-over, a key goes on though its message is still handled by the former owner."""

    async def keep_none(*_: object) -> None:
        pass

    with patch.object(PreviousOwners, "_keep_keys", keep_none):
        yield


@contextmanager
def _set_aside_for_ever() -> Iterator[None]:
    """A suspect that had to wait for another one is forgotten."""

    def ended(self: Any, place: MessageRef) -> None:
        if self._running == place:
            self._running = None

    with patch.object(Suspects, "ended", ended):
        yield


ATTEMPT_MUTANTS = {
    "key not held back": Mutant(_key_not_held_back, ("order",), 30),
    "key freed before the retry": Mutant(_key_freed_before_the_retry, ("order",), 30),
    "attempts not logged": Mutant(_attempts_not_logged, ("D",), 200),
    "deaths not counted": Mutant(_deaths_not_counted, ("poison",), 100),
    "what is held not logged": Mutant(_held_not_logged, ("poison",), 200),
    "sequences of records trusted": Mutant(_sequences_trusted, ("attempts",), 50, 304),
    "keys of what is held not kept": Mutant(_held_keys_not_kept, ("order",), 200),
    "suspects set aside for ever": Mutant(_set_aside_for_ever, ("L",), 200),
    "pauses ignored": Mutant(_pauses_ignored, ("pause",), 10, first=30),
    **HORIZON_MUTANTS,
}

"""What a node counts. One record, many readers (logs, metrics, tests)."""

from dataclasses import dataclass


@dataclass
class Counters:
    """Since the node's start."""

    handled: int = 0
    """Settled after their handler returned."""
    failed: int = 0
    """Attempts that ended otherwise."""
    retried: int = 0
    """Copies put to be handled again later."""
    dead: int = 0
    """Messages sent to the dead letters."""
    fallen_back: int = 0
    """Messages that the fallback handler took instead."""
    expired: int = 0
    """Messages that outlived their time to live; settled without a handler."""
    dropped: int = 0
    """Messages dropped on purpose (`evenlane backlog purge`, `cancel`); settled without a handler."""
    missing: int = 0
    """Sequences that were known and then weren't there (E12); settled."""
    stray: int = 0
    """Messages on a subject that no queue has; sent to the dead letters."""
    void: int = 0
    """Results dropped because the stream they came from was replaced."""
    given_up: int = 0
    """Attempts that gave no sign of life for longer than ack_wait."""
    suspects: int = 0
    """Messages handed out again that were in flight when a process died."""
    ended_blocked_s: int = 0
    """For how long handlers had blocked former owners until their processes ended themselves."""

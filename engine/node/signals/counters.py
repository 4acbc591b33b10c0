"""The node's counters: one record with many readers (logs, metrics, tests)."""

from dataclasses import dataclass


@dataclass
class Counters:
    """Totals since the node's start."""

    handled: int = 0
    """Messages settled after their handler returned."""
    failed: int = 0
    """Attempts with any other outcome."""
    retried: int = 0
    """Copies put for a later attempt."""
    dead: int = 0
    """Messages sent to the dead letters."""
    fallen_back: int = 0
    """Messages that the fallback handler took in place of the dead letters."""
    expired: int = 0
    """Messages that outlived their time to live; settled without a handler."""
    dropped: int = 0
    """Messages dropped on purpose (`evenlane backlog purge`, `cancel`); settled without a handler."""
    missing: int = 0
    """Messages whose sequence was known but which the stream no longer had (E12); settled."""
    passed_over: int = 0
    """Messages of shared streams that aren't for this subscription; settled without a handler."""
    stray: int = 0
    """Messages with an unroutable subject; sent to the dead letters."""
    void: int = 0
    """Results ignored because their stream was replaced."""
    given_up: int = 0
    """Attempts that timed out: no sign of life for longer than ack_wait."""
    suspects: int = 0
    """Messages handed out again after a process died with them in flight."""
    ended_blocked_s: int = 0
    """Seconds for which handlers had blocked previous owners until their processes ended themselves."""

"""The actions that a node carries out for its partitions, as `evenlane.ring.membership.member` decides them."""

from __future__ import annotations

from typing import NamedTuple


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


class ConfirmGeneration(NamedTuple):
    """Report that this generation has been carried out."""

    generation: int


Action = Acquire | Clear | Mark | Open | Close | Release | Drop | ConfirmGeneration

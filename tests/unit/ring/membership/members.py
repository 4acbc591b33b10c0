"""Members in the usual states."""

from evenlane.ring.membership.actions import Acquire, Close, ConfirmGeneration, Open, Release
from evenlane.ring.membership.member import Member

OWN_LEASE, OTHER_LEASE = 7, 8  # leases
FAR = 1 << 62


def member(**fields):
    """A member that knows that no partition is owned."""
    made = Member(OWN_LEASE, FAR, **fields)
    made.on_listing(1, {}, 0)
    return made


def owning(partition=0, epoch=5):
    made = member()
    assert [Acquire(partition, 3)] == made.on_plan(3, 1, [partition], 0)
    assert [Open(partition, epoch)] == made.on_acquired(partition, epoch, 0)
    assert [ConfirmGeneration(1)] == made.on_opened(partition, epoch, 0)
    return made


def releasing():
    made = owning()
    assert [Close(0, 5)] == made.on_plan(6, 2, [], 0)
    assert [Release(0, 5)] == made.on_closed(0, 5)
    return made


def owning_two():
    made = member()
    made.on_plan(3, 1, [0, 1], 0)
    for partition in (0, 1):
        made.on_acquired(partition, 5 + partition, 0)
        made.on_opened(partition, 5 + partition, 0)
    return made

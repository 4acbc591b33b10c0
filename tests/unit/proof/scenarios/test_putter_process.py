"""Putter process: puts without an answer."""

import asyncio
from array import array

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.ports import Lost
from evenlane.engine.proof.broker.putter import PutOrder, Schedule


class Puts:
    """Its first `lost` puts have no answer."""

    def __init__(self, lost):
        self.lost, self.put_so_far = lost, []

    def put(self, project, group, band, number, body):
        answer = asyncio.get_running_loop().create_future()
        self.put_so_far.append(number)
        if len(self.put_so_far) <= self.lost:
            answer.set_exception(Lost("NATS did not answer in time"))
        else:
            answer.set_result(None)
        return answer


def schedule(puts):
    nothing = array("l", [0, 0, 0]).tobytes()
    order = PutOrder(
        url="", env="", cluster_config=ClusterConfig(), projects=["acme"], spreads=[1],
        at=array("q", [0, 0, 0]).tobytes(), tenant=nothing,group=nothing, band=bytes(3), service=b"",
    )  # fmt: skip
    return Schedule(order, puts, now_ns())


async def test_unanswered_put_is_repeated_under_the_same_number():
    """L: the stream drops duplicates."""
    puts = Puts(lost=4)
    await schedule(puts).carry_out()
    assert [0, 1, 2, 0, 0, 1, 2] == puts.put_so_far


async def test_repeated_puts_are_bounded():
    with pytest.raises(Lost):
        await schedule(Puts(lost=100)).carry_out()

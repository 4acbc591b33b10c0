"""Tests of K6 on real servers: in an ordered topic, the messages of one key and priority are handled one after another,
in put order, while nodes die, leave and join.
"""

import asyncio
import logging
import signal

import pytest

from tests.ledger import mixture
from tests.ledger.cluster import ProcessCluster
from tests.ledger.mixture import Mixture
from tests.ledger.replay import check_handled_twice, check_key_order
from tests.ledger.supervised import Supervised
from tests.support.until import until

pytestmark = pytest.mark.real

_log = logging.getLogger(__name__)

MESSAGES, RATE, SLICE = 4_000, 500, 50


async def load(cluster: ProcessCluster, mix: Mixture) -> None:
    producer, puts = await cluster.producer(), list(mix.puts())
    clock = asyncio.get_running_loop().time
    start = clock()
    for first in range(0, len(puts), SLICE):
        await cluster.put(producer, puts[first : first + SLICE])
        await asyncio.sleep(max(0.0, start + first / RATE - clock()))


@pytest.mark.parametrize(
    "fault", ["kill -9", pytest.param("SIGTERM", marks=pytest.mark.full), pytest.param("join", marks=pytest.mark.full)]
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))])
async def test_keys_stay_in_order(tmp_path, fault, seed):
    """K6: attempts fail, ask for a retry, hang or are rejected, while a node dies, leaves or joins."""
    async with (
        ProcessCluster(tmp_path) as cluster,
        Supervised(cluster, "a", concurrency=16) as a,
        Supervised(cluster, "b", concurrency=16),
    ):
        await cluster.topics(*mixture.projects("ordered"), ordered=True, groups=4, ack_wait=1)
        mix = Mixture(MESSAGES, seed, {"ordered": 1.0})
        loading = asyncio.create_task(load(cluster, mix))
        joined = []
        for part in (1, 2):
            await until(lambda part=part: len(cluster.acknowledged) > part * MESSAGES // 3, 60, "the load")
            if fault == "join":
                joined += await cluster.start(f"c{part}", concurrency=16)
            else:
                a.node.send(signal.SIGKILL if fault == "kill -9" else signal.SIGTERM)
        await loading
        hopeless = mix.ordered("reject", "stubborn")
        dead = await cluster.dead_letters()
        await cluster.ended(dead, timeout=90)
        # (a message in flight at a death had one more attempt, and may have none left)
        extra = await dead.ids() - hopeless
        assert len(extra) <= (2 * 16 if fault == "kill -9" else 0)
        for node in joined:
            assert 0 == await node.stop()
    entries = cluster.entries()
    doubled = check_handled_twice(entries, a.killed)
    assert [] == cluster.refused
    keys = mix.keys_as_stored(cluster.acknowledged)
    assert len(cluster.acknowledged) == check_key_order(entries, keys, a.killed)
    _log.info("%s: %d in order; handled twice: %d", fault, len(cluster.acknowledged), len(doubled))

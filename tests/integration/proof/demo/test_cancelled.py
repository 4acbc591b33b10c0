"""Ctrl-C ends the demo at any wait for NATS (E7), also in the instant in which the answer comes."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.broker.environment import environment, open_store
from evenlane.engine.proof.demo.ledger import dead_letters
from tests.support.cancelling import cancelled_anywhere

pytestmark = pytest.mark.real


@pytest.mark.parametrize("when", ["while it waits", "as it comes"])
async def test_turn_can_be_cancelled_at_each_wait_for_nats(nats_server, env, when):
    url = nats_server.url

    async def turn():
        async with (
            environment(url, env, ClusterConfig(partitions=1), {}.get),
            open_store(url, env) as producer,
            dead_letters(url, env) as dead,
        ):
            await producer.put(names.dead_subject(env, "acme"), b"", b"7")
            await producer.state(names.DEAD)
            assert await dead.numbers() <= {7}  # (an acknowledged message may reach other clients later)

    assert 25 < await cancelled_anywhere(turn, when)

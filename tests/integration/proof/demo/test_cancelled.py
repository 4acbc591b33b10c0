"""Ctrl-C ends the demo at whatever it is (E7): its waits for NATS hear of a cancellation, also as the answer comes."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.broker.environment import environment, open_store
from evenlane.engine.proof.demo.ledger import dead_letters
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.cancelling import cancelled_anywhere

pytestmark = pytest.mark.real


@pytest.fixture
async def server(tmp_path):
    made = NatsServer(tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("when", ["while it waits", "as it comes"])
async def test_a_turn_is_cancelled_at_each_of_its_waits_for_nats(server, when):
    url, env = server.url, "demo"

    async def turn():
        async with (
            environment(url, env, ClusterConfig(partitions=1), {}.get),
            open_store(url, env) as producer,
            dead_letters(url, env) as dead,
        ):
            await producer.put(names.dead_subject(env, "acme"), b"", b"7")
            await producer.state(names.DEAD)
            assert await dead.numbers() <= {7}  # (what is acknowledged may reach other clients later)

    assert 25 < await cancelled_anywhere(turn, when)

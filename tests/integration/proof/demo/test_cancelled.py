"""Ctrl-C ends the demo at whatever it is (E7): its waits for NATS hear of a cancellation, also as the answer comes."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.proof.demo.ledger import dead_letters
from evenlane.engine.proof.demo.streams import stores
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
    settings = Settings(nats=(server.url,), env="demo")

    async def turn():
        async with stores(settings, 1) as both, dead_letters(settings) as dead:
            await both.producer.put(names.dead_subject(settings.env, "acme"), b"", b"7")
            await both.producer.state(names.DEAD)
            assert await dead.numbers() <= {7}  # (what is acknowledged may reach other clients later)

    assert 25 < await cancelled_anywhere(turn, when)

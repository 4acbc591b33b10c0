"""A process that can't recover by itself fails its liveness probe, and only then."""

import asyncio

from evenlane.engine.errors import Unreachable
from evenlane.engine.http.liveness import Health, Liveness
from evenlane.ring.coordination.ports import Unavailable

SECOND = 1_000_000_000


class World:
    """A process that serves or not, and servers that answer new connections or not."""

    def __init__(self):
        self.serves, self.error, self.probes, self.at = True, None, 0, 0
        self.liveness = Liveness(lambda: self.serves, self.probe, patience_s=60, now=lambda: self.at)

    async def probe(self):
        self.probes += 1
        if self.error is not None:
            raise self.error

    async def look(self, at_s):
        self.at = at_s * SECOND
        return await self.liveness.explain_stuck()


async def test_process_without_lease_is_stuck_once_the_patience_is_over():
    world = World()
    assert await world.look(0) == ""
    world.serves = False
    assert [await world.look(at) for at in (100, 130, 159)] == ["", "", ""]
    assert world.probes == 0
    text = "it has had no lease for 60 s, although etcd and NATS answer new connections: restart it"
    assert await world.look(160) == text


async def test_process_that_serves_again_is_not_stuck_and_gets_the_full_time_again():
    world = World()
    world.serves = False
    assert [await world.look(at) for at in (0, 30)] == ["", ""]
    assert await world.look(60)
    world.serves = True
    assert await world.look(61) == ""
    world.serves = False
    assert [await world.look(at) for at in (70, 100, 129)] == ["", "", ""]
    assert await world.look(130)


async def test_process_is_not_restarted_while_the_servers_are_out_of_reach_for_all():
    """V: a restart would help nobody. The servers are asked once in 10 s at most."""
    world = World()
    world.serves = False
    for error in (Unavailable("etcd"), Unreachable("NATS"), TimeoutError()):
        world.error, world.probes = error, 0
        start = world.at // SECOND
        assert {await world.look(start + second) for second in range(121)} == {""}
        assert world.probes <= 13
    world.error = None
    assert await world.look(start + 131)


async def test_time_without_a_look_does_not_count():
    """Two looks an hour apart may both fall into a short rejoin."""
    world = World()
    world.serves = False
    assert [await world.look(at) for at in (0, 3_600, 3_630)] == ["", "", ""]
    assert await world.look(3_660)


async def test_concurrent_looks_share_a_probe():
    world = World()
    world.serves = False
    await world.look(0)
    await world.look(30)
    found = await asyncio.gather(*(world.look(60) for _ in range(20)))
    assert all(found)
    assert world.probes == 1


def test_document_has_the_sentence_only_if_there_is_one():
    assert Health("n", "online").document() == {"node": "n", "env": "online"}
    assert Health("n", "online", "restart it").document()["error"] == "restart it"

"""What a starting node learns of real servers about acknowledged messages: whether they are on disk."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.durability import ServerSync, Unknown, read_sync
from evenlane.engine.store.jetstream.store import JetStreamStore

pytestmark = pytest.mark.real


async def risks(server, monitor):
    store = JetStreamStore(NatsOptions((server.url,), monitor=monitor), "online", feeds_apart=False)
    await store.open()
    try:
        await store.prepare([])
        return await store.find_risks()
    finally:
        await store.close()


@pytest.mark.parametrize("fast", [False, True])
async def test_server_of_up_syncs_before_it_acknowledges(tmp_path, fast):
    """L: as its monitoring address tells. Servers of tests don't, and the node says so."""
    port = free_port()
    server = NatsServer(tmp_path, config=f"http: 127.0.0.1:{port}", fast=fast)
    await server.start()
    try:
        monitor = f"http://127.0.0.1:{port}"
        assert [ServerSync(server.name, not fast, 120.0)] == await read_sync([monitor], None)
        found = await risks(server, (monitor,))
        assert [f"the NATS server {server.name} syncs to its disk every 2m"] * fast == [
            risk.partition(":")[0] for risk in found
        ]
    finally:
        await server.stop()


async def read_from(body):
    """What a server with this answer makes of the question."""

    async def answer(_request):
        return web.Response(body=body)

    app = web.Application()
    app.router.add_get("/varz", answer)
    async with TestServer(app) as server:
        return await read_sync([str(server.make_url("")).rstrip("/")], None)


async def test_monitoring_address_that_does_not_tell_is_explained(nats_server, etcd_server):
    closed = f"http://127.0.0.1:{free_port()}"
    silent, wrong = await read_sync([closed, etcd_server.url], None)
    assert isinstance(silent, Unknown)
    assert "Connect call failed" in silent.why
    assert wrong == Unknown(etcd_server.url, "this isn't the monitoring address of a NATS server")
    for odd in (b'{"server_name": "\xff"}', b"[" * 100_000):
        assert [Unknown] == [type(found) for found in await read_from(odd)]
    [risk] = await risks(nats_server, (closed,))
    assert risk.startswith(f"whether the NATS server at {closed} syncs isn't known")


async def test_answer_that_comes_in_parts_is_read_whole():
    """L: the answer of a server with many accounts is longer than one packet."""
    varz = b'{"server_name": "n1", "note": "' + b"x" * 200_000 + b'", "jetstream": {"config": {"sync_always": true}}}'
    assert [ServerSync("n1", always=True, interval_s=0.0)] == await read_from(varz)

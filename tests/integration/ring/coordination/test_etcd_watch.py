"""Watches of the etcd adapter when etcd or the connection to it fails; the rest is in the contract."""

import asyncio
import ctypes
import threading
from base64 import b64encode

import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer, request
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.coordination.etcd.channel import Address
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.etcd.watch import EtcdWatch
from evenlane.ring.coordination.ports import Listing, Unavailable
from tests.support.etcd.hanging import hanging
from tests.support.etcd.harness import listing, next_update, short
from tests.support.until import until

pytestmark = pytest.mark.real


async def answers(client):
    try:
        return await client.status()
    except Unavailable:
        return False


class TestWatch:
    async def test_watch_and_calls_recover_after_each_restart(self, own_etcd):
        """L: changes during an interruption of a watch are in its next listing."""
        client = EtcdCoordination([own_etcd.endpoint])
        watch = client.watch("/t/")
        await next_update(watch)
        for name in ("a", "b", "c"):
            await own_etcd.kill()
            with pytest.raises(Unavailable):
                await client.get("/t/a")
            await own_etcd.start()
            await until(lambda: answers(client))
            await client.put("/t/" + name, b"")
            await until_known(watch, "/t/" + name)
        assert await client.list("/t/") == await listing(client.watch("/t/"))
        await client.put("/t/d", b"4")
        assert ("put", "d", "4") == short(await next_update(watch))
        await client.close()

    async def test_watch_may_begin_before_server(self, tmp_path):
        server = EtcdServer(tmp_path, fast=True, port=free_port())
        client = EtcdCoordination([server.endpoint])
        watch = client.watch("/t/")
        with pytest.raises(TimeoutError):
            await next_update(watch, timeout=0.3)
        await server.start()
        try:
            assert ("listing",) == short(await next_update(watch))
            await client.put("/t/a", b"")
            assert ("put", "a", "") == short(await next_update(watch))
        finally:
            await client.close()
            await server.stop()

    async def test_watch_lists_again_after_compaction_while_disconnected(self, etcd_server, client, proxy, prefix):
        """Fault 11: within 5 s, the watch knows what a new list returns."""
        away = EtcdCoordination([proxy.endpoint])
        watch = away.watch(prefix)
        await client.put(prefix + "old", b"")
        await until_known(watch, prefix + "old")
        await proxy.cut()
        await client.delete(prefix + "old")
        revision = [await client.put(prefix + "new", b"%d" % n) for n in range(100)][-1]
        await request(etcd_server.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        await proxy.start()
        assert await client.list(prefix) == await listing(watch, timeout=5.0)
        await away.close()

    async def test_slow_consumer_gets_all_events(self, client, prefix):
        """M: the events that wait for a slow consumer are bounded here, and kept by etcd."""
        watch = client.watch(prefix)
        await next_update(watch)
        value = b"x" * 1_000
        await asyncio.gather(*(client.put(f"{prefix}{n % 10}", value) for n in range(200)))
        received = [await next_update(watch) for _ in range(200)]
        assert sorted(event.item.mod_revision for event in received) == [event.item.mod_revision for event in received]

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    async def test_watch_recovers_from_death_of_its_threads(self, etcd_server, prefix):
        """E13: otherwise the watch would silently miss all further changes."""

        async def put(value):  # not by gRPC, so that all new threads are those of the watch
            body = {"key": b64encode(prefix.encode()).decode(), "value": b64encode(value).decode()}
            await request(etcd_server.port, "POST", "/v3/kv/put", body)

        before = {*threading.enumerate()}
        watch = EtcdWatch(Address((etcd_server.endpoint,)), prefix, silent_s=1.0)
        assert () == (await next_update(watch)).items
        await put(b"1")
        await until_value(watch, b"1")
        for thread in {*threading.enumerate()} - before:
            if not thread.name.startswith("etcd watch"):  # gRPC's own
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError))
        await put(b"2")  # the last change that reaches them
        await put(b"3")
        await until_value(watch, b"3")
        await asyncio.wait_for(watch.aclose(), 60)

    async def test_thread_ends_with_watch(self, client, prefix):
        watches = [client.watch(f"{prefix}{n}") for n in range(5)]
        for watch in watches:
            await next_update(watch)
        await asyncio.gather(*(watch.aclose() for watch in watches))
        await until(
            lambda: not [each for each in threading.enumerate() if each.name.startswith(f"etcd watch {prefix}")]
        )

    @pytest.mark.full
    async def test_watch_notices_silently_dead_connection(self, etcd_server, client, prefix):
        """Fault 10: the watch restarts within 8 s of silence."""
        watch = client.watch(prefix)
        await next_update(watch)
        async with hanging(etcd_server):
            await asyncio.sleep(10.0)
        assert isinstance(await next_update(watch), Listing)


async def until_known(watch, key):
    await _until_seen(watch, lambda item: item.key == key)


async def until_value(watch, value):
    """In an event, or in the listing of a watch that has restarted because the machine paused."""
    await _until_seen(watch, lambda item: item.value == value)


async def _until_seen(watch, is_it):
    async with asyncio.timeout(60):
        async for each in watch:
            if any(map(is_it, each.items if isinstance(each, Listing) else [each.item])):
                return

"""What the etcd adapter does when etcd or the way to it fails; the rest is in the contract."""

import asyncio
import ctypes
import subprocess
import sys
import threading
import time

import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer, request
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.coordination.etcd.channel import Address, connect, explained, grpc
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.etcd.watch import EtcdWatch, _stream
from evenlane.ring.coordination.ports import CoordinationError, LeaseGone, Listing, Unavailable
from tests.support.etcd.hanging import hanging
from tests.support.etcd.harness import listing, next_update, short
from tests.support.etcd.proxy import Proxy
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def client(own_etcd):
    made = EtcdCoordination([own_etcd.endpoint])
    yield made
    await made.close()


@pytest.fixture
async def proxy(own_etcd):
    made = Proxy(own_etcd.endpoint)
    await made.start()
    yield made
    await made.cut()


class TestSilence:
    @pytest.mark.parametrize("name", ["get", "put", "grant", "keep_alive", "status", "watch"])
    async def test_a_server_that_is_down_is_unavailable_in_one_sentence(self, name):
        endpoint = f"127.0.0.1:{free_port()}"
        client = EtcdCoordination([endpoint])
        arguments = {"get": ["a"], "put": ["a", b""], "grant": [5], "keep_alive": [1]}.get(name, [])
        if name == "watch":
            watch = client.watch("a")
            with pytest.raises(TimeoutError):
                await next_update(watch, timeout=0.5)
        else:
            async with asyncio.timeout(3.0):
                with pytest.raises(Unavailable) as caught:
                    await getattr(client, name)(*arguments)
            assert f"etcd at {endpoint} does not answer: connection refused" == str(caught.value)
        async with asyncio.timeout(1.0):
            await client.close()

    async def test_a_server_that_hangs_is_unavailable_after_the_deadline(self, own_etcd, client):
        await client.put("a", b"")
        watch = client.watch("a")
        await next_update(watch)
        async with hanging(own_etcd):
            started = time.monotonic()
            calls = [client.get("a"), client.keep_alive(5), *(client.put("a", b"") for _ in range(50))]
            results = await asyncio.gather(*calls, return_exceptions=True)
            silent = f"etcd at {own_etcd.endpoint} does not answer: no reply"
            assert {*map(str, results)} <= {f"{silent} within 2 s", f"{silent} to a ping"}
            assert 1.0 < time.monotonic() - started < 20.0  # one after another they would take 104 s
            async with asyncio.timeout(1.0):
                await client.close()

    async def test_threads_that_have_died_are_made_anew(self, own_etcd, monkeypatch):
        """E13: a handler that uses up the memory may leave a thread dead before its first line. Whoever waits for it is
        told that nothing came, and the next call has threads of its own.
        """
        client = EtcdCoordination([own_etcd.endpoint], deadline_s=0.5)
        lease = await client.grant(60)
        with monkeypatch.context() as dying:
            dying.setattr(threading.Thread, "run", lambda _self: None)
            calls = asyncio.gather(client.keep_alive(lease), client.get("a"), return_exceptions=True)
            renewed, _ = await asyncio.wait_for(calls, 20)  # (the other one may have had a thread that lived)
        assert isinstance(renewed, Unavailable)
        assert 60 == await client.keep_alive(lease)
        assert await client.get("a") is None
        await client.close()

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    async def test_a_watch_whose_threads_have_died_is_made_anew(self, own_etcd, client):
        """E13: nobody would hear anything any more, and nobody would notice."""
        before = {*threading.enumerate()}
        watch = EtcdWatch(Address((own_etcd.endpoint,)), "a", silent_s=1.0)
        assert () == (await next_update(watch)).items
        await client.put("a", b"1")
        assert b"1" == (await next_update(watch)).item.value
        for thread in {*threading.enumerate()} - before:
            if not thread.name.startswith("etcd watch"):  # gRPC's own
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(MemoryError))
        await client.put("a", b"2")  # the last that they hear
        await client.put("a", b"3")

        async def received():
            async for each in watch:
                items = each.items if isinstance(each, Listing) else [each.item]
                if any(item.value == b"3" for item in items):
                    return

        await asyncio.wait_for(received(), 20)
        await asyncio.wait_for(watch.aclose(), 20)

    async def test_giving_up_a_call_is_at_once(self, own_etcd, client):
        await client.put("a", b"")
        async with hanging(own_etcd):
            async with asyncio.timeout(1.0):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.get("a"), 0.1)
        await until(lambda: _answers(client))

    async def test_calls_work_again_after_a_restart(self, own_etcd, client):
        await client.put("a", b"1")
        await own_etcd.kill()
        with pytest.raises(Unavailable):
            await client.get("a")
        await own_etcd.start()
        await until(lambda: _answers(client), timeout=5.0)
        assert (await client.get("a")).value == b"1"


async def _answers(client):
    try:
        return await client.status()
    except Unavailable:
        return False


class TestWatch:
    async def test_lists_again_after_each_restart(self, own_etcd, client):
        """L: what changed while a watch was away is in its next listing."""
        watch = client.watch("/t/")
        await next_update(watch)
        for name in ("a", "b", "c"):
            await own_etcd.kill()
            await own_etcd.start()
            await until(lambda: _answers(client))
            await client.put("/t/" + name, b"")
            await until_known(watch, "/t/" + name)
        assert await client.list("/t/") == await _fresh(client)
        await client.put("/t/d", b"4")
        assert ("put", "d", "4") == short(await next_update(watch))

    async def test_begun_before_the_server(self, tmp_path):
        server = EtcdServer(tmp_path, fast=True, port=free_port())
        client = EtcdCoordination([server.endpoint])
        watch = client.watch("/t/")
        with pytest.raises(TimeoutError):
            await next_update(watch, timeout=0.3)
        await server.start()
        try:
            assert ("listing",) == short(await next_update(watch, timeout=5.0))
            await client.put("/t/a", b"")
            assert ("put", "a", "") == short(await next_update(watch))
        finally:
            await client.close()
            await server.stop()

    async def test_lists_again_after_a_compaction_while_it_was_away(self, own_etcd, client, proxy):
        """Fault 11: what it knows equals a fresh list within 5 s."""
        away = EtcdCoordination([proxy.endpoint])
        watch = away.watch("/t/")
        await client.put("/t/old", b"")
        await until_known(watch, "/t/old")
        await proxy.cut()
        await client.delete("/t/old")
        revision = [await client.put("/t/new", b"%d" % n) for n in range(100)][-1]
        await request(own_etcd.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        await proxy.start()
        assert await client.list("/t/") == await listing(watch, timeout=5.0)
        await away.close()

    async def test_a_stream_from_a_compacted_revision_ends_with_the_reason(self, own_etcd, client):
        revision = [await client.put("/t/a", b"%d" % n) for n in range(10)][-1]
        await request(own_etcd.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        bare = connect(Address((own_etcd.endpoint,)))
        with pytest.raises(CoordinationError, match=f"compacted what came before revision {revision}"):
            await asyncio.to_thread(next, _stream(bare, "/t/", 2))
        bare.close()

    async def test_a_consumer_that_lags_gets_all(self, own_etcd, client):
        """M: what waits for a slow consumer is bounded here, and kept by etcd."""
        watch = client.watch("/t/")
        await next_update(watch)
        value = b"x" * 1_000
        await asyncio.gather(*(client.put(f"/t/{n % 10}", value) for n in range(200)))
        received = [await next_update(watch) for _ in range(200)]
        assert sorted(event.item.mod_revision for event in received) == [event.item.mod_revision for event in received]

    async def test_its_thread_ends_with_it(self, own_etcd, client):
        watches = [client.watch(f"/t/{n}") for n in range(5)]
        for watch in watches:
            await next_update(watch)
        await asyncio.gather(*(watch.aclose() for watch in watches))
        await until(lambda: not [each for each in threading.enumerate() if each.name.startswith("etcd watch /t/")])

    @pytest.mark.full
    async def test_notices_a_connection_that_is_dead_without_a_word(self, own_etcd, client):
        """Fault 10: within 8 s of silence the watch begins anew."""
        watch = client.watch("/t/")
        await next_update(watch)
        async with hanging(own_etcd):
            await asyncio.sleep(10.0)
        assert isinstance(await next_update(watch, timeout=5.0), Listing)


async def until_known(watch, key):
    async with asyncio.timeout(10.0):
        async for each in watch:
            items = each.items if isinstance(each, Listing) else (each.item,)
            if key in {item.key for item in items}:
                return


async def _fresh(client):
    return await listing(client.watch("/t/"))


class TestEndpoints:
    @pytest.mark.parametrize("dead", [0, 1, 2])
    async def test_one_of_three_that_is_down_costs_nothing(self, own_etcd, dead):
        """Fault 8: etcd's members are asked in turn, and those that are down aren't."""
        endpoints = [own_etcd.endpoint] * 3
        endpoints[dead] = f"127.0.0.1:{free_port()}"
        client = EtcdCoordination(endpoints)
        await asyncio.gather(*(client.put("a", b"") for _ in range(20)))
        assert isinstance(await next_update(client.watch("a")), Listing)
        await client.close()

    async def test_one_that_hangs_costs_one_call(self, own_etcd, proxy):
        """Fault 8: a lease is renewed twice in its time, so one call in vain is no harm."""
        client = EtcdCoordination([own_etcd.endpoint, proxy.endpoint])

        async def both_are_asked():
            await client.put("a", b"")
            return proxy.passed > 5_000

        await until(both_are_asked)
        proxy.passing.clear()
        results = [await _outcome(client.put("a", b"")) for _ in range(20)]
        [failed] = [result for result in results if result is not None]
        assert failed in {"no reply within 2 s", "no reply to a ping"}, "whichever notices first"
        await client.close()

    @pytest.fixture
    def known_names(self, monkeypatch):
        known = {"localhost": "127.0.0.1"}

        def look_up(host):
            if host not in known:
                raise OSError(host)
            return known[host]

        monkeypatch.setattr("evenlane.ring.coordination.etcd.channel.socket.gethostbyname", look_up)

    async def test_names_are_looked_up(self, own_etcd, known_names):
        client = EtcdCoordination([f"localhost:{own_etcd.port}", "no-such-host.invalid:2379"])
        await client.put("a", b"")
        await client.close()

    async def test_no_name_known(self, known_names):
        client = EtcdCoordination(["a.invalid:1", "b.invalid:1"])
        with pytest.raises(Unavailable, match=r"no address for a\.invalid, b\.invalid"):
            await client.status()
        await client.close()

    @pytest.mark.parametrize(
        "endpoints", [[], [""], ["etcd"], ["http://127.0.0.1:2379"], ["a:b"], ["a:99999"], [":1"], ["a:²"]]
    )
    def test_what_is_no_endpoint_is_refused(self, endpoints):
        with pytest.raises(ValueError, match="HOST:PORT is needed"):
            EtcdCoordination(endpoints)


async def _outcome(call):
    """None if the call was answered, else the last part of the sentence."""
    try:
        await call
    except Unavailable as error:
        return str(error).rpartition(": ")[2]


class TestErrors:
    class FakeRpcError(grpc.RpcError):
        def __init__(self, code, details):
            self._code, self._details = code, details

        def code(self):
            return self._code

        def details(self):
            return self._details

    @pytest.mark.parametrize(
        ("code", "details", "kind", "sentence"),
        [
            ("UNAVAILABLE", "etcdserver: no leader", Unavailable, "etcd at h:1 does not answer: no leader"),
            (
                "UNAVAILABLE",
                "x; last error: UNKNOWN: y",
                Unavailable,
                "etcd at h:1 does not answer: UNKNOWN: y",
            ),
            ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone, "knows the lease no more"),
            (
                "RESOURCE_EXHAUSTED",
                "etcdserver: mvcc: database space exceeded",
                CoordinationError,
                "refuses: mvcc",
            ),
            (
                "UNKNOWN",
                "context deadline exceeded",
                Unavailable,
                "does not answer: context deadline exceeded",
            ),
            ("INTERNAL", None, CoordinationError, "etcd at h:1 refuses: no reason given"),
        ],
    )
    def test_are_one_sentence(self, code, details, kind, sentence):
        error = explained(Address(("h:1",)), self.FakeRpcError(getattr(grpc.StatusCode, code), details))
        assert type(error) is kind
        assert sentence in str(error)


class TestExit:
    @pytest.mark.parametrize("running", [True, False])
    def test_open_watches_do_not_hold_up_the_process(self, etcd_server, running):
        endpoint = etcd_server.endpoint if running else f"127.0.0.1:{free_port()}"
        program = (
            "import asyncio, time\n"
            "from evenlane.ring.coordination.etcd.client import EtcdCoordination\n"
            "async def main():\n"
            f"    client = EtcdCoordination([{endpoint!r}])\n"
            "    watches = [client.watch('/exit/') for _ in range(5)]\n"
            f"    if {running}:\n"
            "        for watch in watches: await anext(watch)\n"
            "asyncio.run(main())\n"
            "print(time.time())\n"
        )
        done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=20)
        assert (0, "") == (done.returncode, done.stderr)
        assert time.time() - float(done.stdout) < 1.0

"""The etcd adapter when etcd or the connection to it fails; the rest is in the contract."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.coordination.etcd.channel import Address, explain_error, grpc
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, LeaseGone, Listing, Unavailable
from tests.integration.ring.coordination.test_etcd_watch import answers
from tests.support.etcd.hanging import hanging
from tests.support.etcd.harness import next_update
from tests.support.until import until

pytestmark = pytest.mark.real


class TestSilence:
    @pytest.mark.parametrize("name", ["get", "put", "grant", "keep_alive", "status", "watch"])
    async def test_server_that_is_down_is_unavailable(self, name):
        endpoint = f"127.0.0.1:{free_port()}"
        client = EtcdCoordination([endpoint])
        arguments = {"get": ["a"], "put": ["a", b""], "grant": [5], "keep_alive": [1]}.get(name, [])
        if name == "watch":
            watch = client.watch("a")
            with pytest.raises(TimeoutError):
                await next_update(watch, timeout=0.5)
        else:
            async with asyncio.timeout(30):
                with pytest.raises(Unavailable) as caught:
                    await getattr(client, name)(*arguments)
            assert f"etcd at {endpoint} does not answer: connection refused" == str(caught.value)
        async with asyncio.timeout(30):
            await client.close()

    async def test_hanging_server_is_unavailable_after_deadline(self, etcd_server, client, prefix):
        await client.put(prefix, b"")
        watch = client.watch(prefix)
        await next_update(watch)
        async with hanging(etcd_server):
            started = time.monotonic()
            calls = [client.get(prefix), client.keep_alive(5), *(client.put(prefix, b"") for _ in range(50))]
            results = await asyncio.gather(*calls, return_exceptions=True)
            silent = f"etcd at {etcd_server.endpoint} does not answer: no reply"
            assert {*map(str, results)} <= {f"{silent} within 2 s", f"{silent} to a ping"}
            assert 1.0 < time.monotonic() - started < 20.0  # one after another, they would take 104 s
            async with asyncio.timeout(30):
                await client.close()

    async def test_call_after_death_of_threads_has_new_ones(self, etcd_server, prefix, monkeypatch):
        """E13: a handler that uses up the memory may leave a thread of gRPC dead before its first line. A renewal that
        waits for it is Unavailable, and the next one has new threads; other calls need none. When the old connection is
        closed, gRPC waits for its dead thread for ever; neither the event loop nor `close` does.
        """
        client = EtcdCoordination([etcd_server.endpoint], deadline_s=1.0)
        lease = await client.grant(60)
        with monkeypatch.context() as dying:
            dying.setattr(threading.Thread, "run", lambda _self: None)
            calls = asyncio.gather(client.keep_alive(lease), client.get(prefix), return_exceptions=True)
            renewal, found = await asyncio.wait_for(calls, 60)
        assert (Unavailable, None) == (type(renewal), found)
        closed_at = time.monotonic() + 1.0
        assert 60 == await client.keep_alive(lease)
        assert await client.get(prefix) is None
        async with asyncio.timeout(60):  # a loop that waits for the thread ends too late
            await until(lambda: time.monotonic() > closed_at + 0.5)
            await client.close()

    async def test_thread_that_dies_before_its_first_line_does_not_block_the_loop(self, client, monkeypatch):
        """E13: `Thread.start` waits for the first line of such a thread for ever, and must not be called on the event
        loop that renews a lease.
        """
        lease = await client.grant(60)

        def die(_thread):
            raise MemoryError

        with monkeypatch.context() as dying:
            dying.setattr(threading.Thread, "_bootstrap_inner", die)
            dying.setattr(sys, "unraisablehook", lambda _: None)
            with pytest.raises(Unavailable, match="no connection within 2 s"):
                await client.keep_alive(lease)
            assert frozenset() == await client.lease_keys(lease)  # needs no thread of gRPC
        assert 60 == await client.keep_alive(lease)

    async def test_call_is_cancelled_long_before_its_deadline(self, etcd_server, prefix):
        client = EtcdCoordination([etcd_server.endpoint], deadline_s=60)
        await client.put(prefix, b"")
        async with hanging(etcd_server):
            async with asyncio.timeout(30):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.get(prefix), 0.1)
        await until(lambda: answers(client))
        await client.close()


class TestEndpoints:
    @pytest.mark.parametrize("dead", [0, 1, 2])
    async def test_one_endpoint_down_of_three_costs_nothing(self, etcd_server, prefix, dead):
        """Fault 8: the client asks etcd's members in turn, and skips those that are down."""
        endpoints = [etcd_server.endpoint] * 3
        endpoints[dead] = f"127.0.0.1:{free_port()}"
        client = EtcdCoordination(endpoints)
        await asyncio.gather(*(client.put(prefix, b"") for _ in range(20)))
        assert isinstance(await next_update(client.watch(prefix)), Listing)
        await client.close()

    async def test_hanging_endpoint_costs_one_call(self, etcd_server, proxy, prefix):
        """Fault 8: a lease is renewed twice in its time, so a single failed call does no harm."""
        client = EtcdCoordination([etcd_server.endpoint, proxy.endpoint])

        async def both_are_asked():
            await client.put(prefix, b"")
            return proxy.passed > 5_000

        await until(both_are_asked)
        proxy.passing.clear()
        results = [await _outcome(client.put(prefix, b"")) for _ in range(20)]
        [failed] = [result for result in results if result is not None]
        assert failed in {"no reply within 2 s", "no reply to a ping"}, "whichever is first"
        await client.close()

    @pytest.fixture
    def known_names(self, monkeypatch):
        known = {"localhost": "127.0.0.1"}

        def look_up(host):
            if host not in known:
                raise OSError(host)
            return known[host]

        monkeypatch.setattr("evenlane.ring.coordination.etcd.channel.socket.gethostbyname", look_up)

    async def test_host_names_are_looked_up(self, etcd_server, prefix, known_names):
        client = EtcdCoordination([f"localhost:{etcd_server.port}", "no-such-host.invalid:2379"])
        await client.put(prefix, b"")
        await client.close()

    async def test_unknown_host_names_are_unavailable(self, known_names):
        client = EtcdCoordination(["a.invalid:1", "b.invalid:1"])
        with pytest.raises(Unavailable, match=r"no address for a\.invalid, b\.invalid"):
            await client.status()
        await client.close()

    @pytest.mark.parametrize(
        "endpoints", [[], [""], ["etcd"], ["http://127.0.0.1:2379"], ["a:b"], ["a:99999"], [":1"], ["a:²"]]
    )
    def test_invalid_endpoint_is_refused(self, endpoints):
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
            ("NOT_FOUND", "etcdserver: requested lease not found", LeaseGone, "no longer knows the lease"),
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
    def test_errors_are_one_sentence(self, code, details, kind, sentence):
        error = explain_error(Address(("h:1",)), self.FakeRpcError(getattr(grpc.StatusCode, code), details))
        assert type(error) is kind
        assert sentence in str(error)

    @pytest.mark.parametrize(
        ("options", "has_answered", "is_named"),
        [({}, False, True), ({}, True, False), ({"ca_cert": "ca.pem"}, False, False)],
    )
    def test_tls_is_named_only_for_a_server_that_has_never_answered(self, options, has_answered, is_named):
        """A plain etcd that is stopped closes its connections, too."""
        closed = self.FakeRpcError(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        sentence = str(explain_error(Address(("h:1",), **options), closed, has_answered=has_answered))
        assert sentence.startswith("etcd at h:1 does not answer: it closed the connection")
        assert is_named == sentence.endswith(", as a server that requires TLS does (etcd_ca)")


class TestExit:
    @pytest.mark.parametrize("running", [True, False])
    def test_process_exits_with_open_watches(self, etcd_server, running):
        endpoint = etcd_server.endpoint if running else f"127.0.0.1:{free_port()}"
        program = (
            "import asyncio\n"
            "from evenlane.ring.coordination.etcd.client import EtcdCoordination\n"
            "async def main():\n"
            f"    client = EtcdCoordination([{endpoint!r}])\n"
            "    watches = [client.watch('/exit/') for _ in range(5)]\n"
            f"    if {running}:\n"
            "        for watch in watches: await anext(watch)\n"
            "asyncio.run(main())\n"
        )
        _run_to_end(program)

    def test_process_exits_while_a_call_waits_for_a_dead_thread(self, etcd_server):
        """E13: a call that waits for a thread of gRPC that died at its start is given up; the process can end."""
        program = (
            "import asyncio, threading\n"
            "from evenlane.ring.coordination.etcd.client import EtcdCoordination\n"
            "async def main():\n"
            f"    client = EtcdCoordination([{etcd_server.endpoint!r}], deadline_s=1.0)\n"
            "    lease = await client.grant(60)\n"
            "    run = threading.Thread.run\n"
            "    threading.Thread.run = lambda _thread: None\n"
            "    print(*map(type, await asyncio.gather(client.keep_alive(lease), return_exceptions=True)))\n"
            "    threading.Thread.run = run\n"
            "    await client.close()\n"
            "asyncio.run(main())\n"
        )
        assert "Unavailable" in _run_to_end(program)


def _run_to_end(program):
    """What the program prints. It must end by itself, and without an error."""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout

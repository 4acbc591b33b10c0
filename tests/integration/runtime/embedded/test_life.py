"""One embedded server: start, stop, crash, restart, and the errors of each."""

import asyncio
import os
import signal
import socket
import sys
import threading
from contextlib import asynccontextmanager

import nats
import psutil
import pytest
import uvloop

from evenlane.engine.errors import ConfigError, DataInUse, PortUnavailable, Unreachable
from evenlane.engine.runtime.embedded import ports, server
from evenlane.engine.runtime.embedded.etcd import EtcdServer, request
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.until import until

pytestmark = pytest.mark.real

KINDS = {
    "nats": NatsServer,
    "etcd": lambda data_dir, **options: EtcdServer(data_dir, fast=True, **options),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@asynccontextmanager
async def started(one):
    await one.start()
    try:
        yield one
    finally:
        await one.stop()


@asynccontextmanager
async def jetstream(url):
    connection = await nats.connect(url)
    try:
        yield connection.jetstream()
    finally:
        await connection.close()


async def test_file_stream_survives_kill_9(tmp_path):
    """L relies on it."""
    async with started(NatsServer(tmp_path)) as one:
        async with jetstream(one.url) as js:
            await js.add_stream(name="S", subjects=["s.>"])
            for number in range(100):
                await js.publish("s.a", str(number).encode())
        url, pid = one.url, one.pid
        await one.kill()
        await one.start()
        assert (url, False) == (one.url, pid == one.pid)
        async with jetstream(one.url) as js:
            state = (await js.stream_info("S")).state
        assert (100, 1, 100) == (state.messages, state.first_seq, state.last_seq)


async def test_keys_survive_kill_9_and_new_port(tmp_path):
    one = EtcdServer(tmp_path, fast=True)
    async with started(one):
        await request(one.port, "POST", "/v3/kv/put", {"key": "YQ==", "value": "Yg=="})
        await one.kill()
    async with started(EtcdServer(tmp_path, port=ports.free_port(), fast=True)) as other:
        assert one.port != other.port
        answer = await request(other.port, "POST", "/v3/kv/range", {"key": "YQ=="})
        assert ["Yg=="] == [entry["value"] for entry in answer["kvs"]]


@each_kind
async def test_stop_is_idempotent_start_is_not_and_restart_keeps_port(tmp_path, make):
    one = make(tmp_path)
    await one.stop()
    await one.kill()
    async with started(one):
        with pytest.raises(RuntimeError, match="already running"):
            await one.start()
        before = one.port, one.pid
        await one.restart()
        assert (before[0], True) == (one.port, one.is_running)
        assert before[1] != one.pid
    await one.stop()
    await one.kill()
    assert not one.is_running


@each_kind
async def test_all_waiters_see_end_of_server(tmp_path, make):
    async with started(make(tmp_path)) as one:
        waiters = [asyncio.create_task(one.wait()) for _ in range(3)]
        await asyncio.sleep(0)  # starts them
        os.kill(one.pid, signal.SIGKILL)
        assert [-signal.SIGKILL] * 3 == await asyncio.wait_for(asyncio.gather(*waiters), 60)
        assert -signal.SIGKILL == await one.wait()
        assert not one.is_running


@each_kind
async def test_suspended_server_stops_in_order(tmp_path, make):
    async with started(make(tmp_path)) as one:
        os.kill(one.pid, signal.SIGSTOP)
        await one.stop()
        assert -signal.SIGKILL != await one.wait()


class IgnoresSigterm(server.Server):
    """A server that answers once its process ignores SIGTERM."""

    kind = title = "stubborn"

    def _command(self):
        ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
        return [sys.executable, "-c", f"{ignore}; open('stubborn/ready', 'w'); signal.pause()"]

    async def _is_answering(self):
        return (self.data_dir / "stubborn" / "ready").exists()


async def test_server_that_ignores_sigterm_is_killed(tmp_path):
    async with started(IgnoresSigterm(tmp_path)) as one:
        one.stop_within_s = 0.1
        await one.stop()
        assert -signal.SIGKILL == await one.wait()


@each_kind
async def test_taken_port_is_reported_in_one_sentence(tmp_path, make):
    with socket.create_server((ports.HOST, 0)) as occupant:
        port = occupant.getsockname()[1]
        one = make(tmp_path, port=port)
        with pytest.raises(PortUnavailable) as failure:
            await one.start()
    expected = (
        f"port {port} on 127.0.0.1 is in use: choose another --{one.kind}-port, or stop the process that listens there"
    )
    assert expected == str(failure.value)


@each_kind
async def test_port_taken_by_another_server_is_replaced(tmp_path, make, monkeypatch):
    """The other process is a server of the same kind that answers: it must not pass for the new one."""
    async with started(make(tmp_path / "first")) as first:
        offers = [first.port, ports.free_port()]
        monkeypatch.setattr(ports, "free_port", lambda: offers.pop(0))
        async with started(make(tmp_path / "second")) as second:
            assert [] == offers
            assert first.port != second.port


@each_kind
async def test_data_directory_has_one_user(tmp_path, make):
    async with started(make(tmp_path)) as one:
        other = make(tmp_path)
        other.lock_within_s = 0.1
        with pytest.raises(DataInUse) as failure:
            await other.start()
        assert one.is_running
    expected = (
        f"data directory {tmp_path} is in use by another {one.title}, of process {os.getpid()}: "
        "stop that process or choose another --data-dir"
    )
    assert expected == str(failure.value)


async def test_data_directory_that_is_file_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as failure:
        await NatsServer(tmp_path / "file").start()
    expected = (
        f"data directory {tmp_path}/file can't be used: Not a directory ({tmp_path}/file/nats): "
        "choose another --data-dir"
    )
    assert expected == str(failure.value)


async def test_unwritable_log_is_reported(tmp_path):
    (tmp_path / "nats.log").mkdir()
    with pytest.raises(ConfigError, match=r"can't be used: Is a directory \(.*nats\.log\): choose another"):
        await NatsServer(tmp_path).start()


async def test_invalid_configuration_error_quotes_server(tmp_path):
    one = NatsServer(tmp_path, config="max_payload: {")
    with pytest.raises(ConfigError, match=r"nats-server ended at its start with exit code 1; .*Parse error.*nats\.log"):
        await one.start()
    assert not one.is_running


async def test_corrupted_data_error_quotes_server(tmp_path):
    async with started(EtcdServer(tmp_path, fast=True)) as one:
        await one.kill()
        (tmp_path / "etcd/member/snap/db").write_text("spoiled")
        with pytest.raises(ConfigError, match=r"failed to open database: invalid database \(.*etcd\.log\)"):
            await one.start()


class NeverAnswers(NatsServer):
    async def _is_answering(self):
        return False


async def test_server_that_never_answers_is_ended_with_error(tmp_path):
    one = NeverAnswers(tmp_path)
    one.ready_within_s = 0.2
    with pytest.raises(Unreachable, match=r"nats-server didn't answer within 0\.2 s; .*nats\.log"):
        await one.start()
    assert not one.is_running


@each_kind
async def test_cancelled_start_leaves_nothing_running(tmp_path, make):
    one = make(tmp_path)
    start = asyncio.create_task(one.start())
    await until(lambda: one.is_running, what="the process")
    process = psutil.Process(one.pid)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not process.is_running()


def test_only_main_thread_starts_servers(tmp_path):
    """The kernel would end them with the thread."""
    failures = []

    def start():
        try:
            asyncio.run(NatsServer(tmp_path).start())
        except RuntimeError as error:
            failures.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert ["servers are started from the main thread only, as they die with the thread that did"] == failures


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_server_may_outlive_event_loop_of_its_start(tmp_path, new_loop):
    one = NatsServer(tmp_path)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(one.start())
        runner.run(one.kill())
        runner.run(one.start())
    assert one.is_running
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(one.stop())
    assert not one.is_running

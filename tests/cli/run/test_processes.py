"""`evenlane run --processes N` as a process with fake nodes, and wrong use of `--processes`."""

import os
import signal
import socket

import psutil
import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.cli.run.http_options import http_ports
from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.ports import free_port, is_free
from tests.cli.run.conftest import is_alive
from tests.support.until import until


def test_http_ports_count_up_from_the_first():
    """0 is any free port."""
    assert ([8080, 8081], [0, 0], []) == tuple([*http_ports(first, 2)] for first in (8080, 0, None))
    assert [65_534, 65_535] == [*http_ports(65_534, 2)]
    with pytest.raises(
        ConfigError, match="--http-port 65534 leaves no port for each of 3 processes: 65533 is the highest"
    ):
        http_ports(65_534, 3)


async def test_taken_http_port_is_found_before_nodes_start(command, fakes):
    """The port of the third node is taken."""
    port = next(port for port in iter(free_port, None) if is_free(port - 1) and is_free(port - 2))
    with socket.create_server(("127.0.0.1", port)):
        one = await command("ready", "ready", "ready", flags=["--http-port", str(port - 2)])
        assert 1 == await one.ended()
    taken = f"port {port} on 127.0.0.1 is in use: choose another --http-port, or stop the process that listens there"
    assert (
        f"evenlane: {taken}; --http-port {port - 2} takes {port - 2} to {port}, one per process\n" == one.stderr_text()
    )
    assert [] == fakes.pids()


WRONG = r"""
run --handler a:b --http-port 65536
run --handler a:b --http-port x
up --http-port 8080
run --handler a:b --processes 0
run --handler a:b --processes -1
run --handler a:b --processes x
up --handler a:b --processes 0
up --handler a:b --processes 1.5
"""


def test_wrong_use_is_one_sentence(transcript):
    transcript.fail(WRONG)
    transcript.check()


@pytest.mark.parametrize("name", ["run", "up"])
@pytest.mark.parametrize(("cores", "most"), [(None, 64), (1, 64), (32, 256)])
def test_more_processes_than_the_machine_can_run_are_refused(capsys, monkeypatch, name, cores, most):
    """1,000 would all start, and block the machine with its servers."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    assert 2 == run([name, "--handler", "a:b", "--processes", str(most + 1)])
    assert f"{most + 1} are too many for one machine with {cores or 1} core" in (err := capsys.readouterr().err)
    assert f": at most {most} can run here, and nodes on other machines share the work" in err
    assert 2 == run([name, "--processes", str(most)]), "there is no handler"
    assert "too many" not in capsys.readouterr().err


def test_processes_need_a_handler(capsys, tmp_path):
    assert 2 == run(["up", "--data-dir", str(tmp_path), "--processes", "2"])
    assert (
        "evenlane: --processes is given without --handler, which the processes would run\n" == capsys.readouterr().err
    )


async def test_ready_line_adds_up_the_nodes_messages_without_etcd(command):
    one = await command("ready", "ready", "ready")
    assert "ready node=n partitions=12 generation=7" == await one.line()
    os.killpg(one.process.pid, signal.SIGINT)
    assert 0 == await one.ended()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_second_signal_ends_all_at_once(command, fakes, number, code):
    one = await command("deaf", "deaf")
    await one.line()
    os.killpg(one.process.pid, number)
    await until(lambda: ["SIGTERM"] * 2 == fakes.signals())
    os.killpg(one.process.pid, number)
    assert code == await one.ended()
    assert not any(map(psutil.pid_exists, fakes.pids()))


async def test_nodes_end_after_kill_9_of_the_supervisor(command, fakes):
    one = await command("ready", "deaf")
    await one.line()
    nodes = [psutil.Process(pid) for pid in fakes.pids()]
    one.process.kill()
    await until(lambda: not any(is_alive(node) for node in nodes))
    assert ["SIGTERM"] * 2 == fakes.signals()

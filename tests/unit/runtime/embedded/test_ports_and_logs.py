"""Ports and last log lines of embedded servers, without a server."""

import socket
from pathlib import Path

import pytest

from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded import logs, ports


def test_free_port_is_below_the_ephemeral_range():
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = ports.free_port()
    assert 1024 <= port < first
    ports.check_port(port, "--nats-port")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_port_is_taken_while_a_process_listens(host):
    with socket.create_server((host, 0)) as occupant:
        assert not ports.is_free(occupant.getsockname()[1])


def test_port_with_connections_in_time_wait_is_free():
    with socket.create_server((ports.HOST, ports.free_port())) as occupant:
        port = occupant.getsockname()[1]
        with socket.create_connection((ports.HOST, port)) as client:
            occupant.accept()[0].close()  # this side closes first, so it keeps TIME_WAIT
            assert b"" == client.recv(1)
    assert ports.is_free(port)


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_port_out_of_range_raises(port):
    with pytest.raises(ConfigError, match=rf"port {port} of --etcd-port is out of range: choose one of 1 to"):
        ports.check_port(port, "--etcd-port")


def test_last_words_name_the_cause():
    text = (
        '{"level":"warn","msg":"later"}\n'
        '{"level":"fatal","msg":"discovery failed","error":"no such thing","stacktrace":"a\\n\\tb"}\n'
        "goroutine 133 [running]:\n"
    )
    assert "discovery failed: no such thing" == logs.last_words(text)
    assert "Error listening" == logs.last_words("[1] 2026/01/01 [INF] Up\n[1] 2026/01/01 [FTL] Error listening\n")


def test_last_words_are_otherwise_the_last_line():
    assert "second" == logs.last_words("first\nsecond\n\n")
    assert "5" == logs.last_words("5")
    assert "x" * 300 == logs.last_words("x" * 1000)
    assert "nothing" == logs.last_words("")


def test_log_is_read_from_the_start_of_the_run(tmp_path):
    path = tmp_path / "log"
    assert "" == logs.since(path, 0)
    path.write_text("old\nnew\n")
    assert "new\n" == logs.since(path, 4)

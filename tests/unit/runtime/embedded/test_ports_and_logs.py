"""The parts that need no server: ports and last words."""

import socket
from pathlib import Path

import pytest

from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded import logs, ports


def test_a_free_port_is_none_the_kernel_gives_to_outgoing_connections():
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    port = ports.free_port()
    assert 1024 <= port < first
    ports.check_port(port, "--nats-port")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_is_taken_while_another_listens(host):
    with socket.create_server((host, 0)) as occupant:
        assert not ports.is_free(occupant.getsockname()[1])


def test_a_port_whose_connections_are_in_time_wait_is_free():
    with socket.create_server((ports.HOST, ports.free_port())) as occupant:
        port = occupant.getsockname()[1]
        with socket.create_connection((ports.HOST, port)) as client:
            occupant.accept()[0].close()  # this side closes first, so it keeps TIME_WAIT
            assert b"" == client.recv(1)
    assert ports.is_free(port)


@pytest.mark.parametrize("port", [0, -1, 65_536])
def test_a_port_out_of_range_is_told(port):
    with pytest.raises(ConfigError, match=rf"port {port} of --etcd-port is out of range: choose one of 1 to"):
        ports.check_port(port, "--etcd-port")


def test_last_words_name_the_cause_not_what_came_after():
    text = (
        '{"level":"warn","msg":"later"}\n'
        '{"level":"fatal","msg":"discovery failed","error":"no such thing","stacktrace":"a\\n\\tb"}\n'
        "goroutine 133 [running]:\n"
    )
    assert "discovery failed: no such thing" == logs.last_words(text)
    assert "Error listening" == logs.last_words("[1] 2026/01/01 [INF] Up\n[1] 2026/01/01 [FTL] Error listening\n")


def test_last_words_are_else_the_last_line_and_short():
    assert "second" == logs.last_words("first\nsecond\n\n")
    assert "5" == logs.last_words("5")
    assert "x" * 300 == logs.last_words("x" * 1000)
    assert "nothing" == logs.last_words("")


def test_a_log_is_read_from_where_a_run_began(tmp_path):
    path = tmp_path / "log"
    assert "" == logs.since(path, 0)
    path.write_text("old\nnew\n")
    assert "new\n" == logs.since(path, 4)

"""`evenlane up`: wrong ports and servers are reported, before anything starts if possible."""

import socket

import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.runtime.embedded.ports import free_port

HANDLER = ["--handler", "examples.handler:handle"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--nats", "nats://127.0.0.1:4222"],
            "--nats names a server that is already running, but `up` starts its own: leave it out (--nats-port",
        ),
        (["--etcd", "127.0.0.1:2379", *HANDLER], "--etcd names a server that is already running"),
        (
            ["--nats-port", "4222", "--etcd-port", "4222"],
            "--nats-port and --etcd-port both take port 4222: give each its own",
        ),
        (
            ["--nats-port", "1883", "--mqtt-port", "1883"],
            "--nats-port and --mqtt-port both take port 1883: give each its own",
        ),
        (
            [*HANDLER, "--reload", "--processes", "2"],
            "--reload restarts a single node: leave out --processes, or --reload",
        ),
        (["--reload"], "--reload is given without --handler, whose node it would restart"),
        (
            [*HANDLER, "--etcd-port", "8082", "--http-port", "8080", "--processes", "3"],
            "--etcd-port and --http-port both take port 8082: give each its own",
        ),
    ],
)
def test_wrong_use_is_refused_before_anything_starts(capsys, tmp_path, arguments, sentence):
    assert 2 == run(["up", "--data-dir", str(tmp_path / "d"), *arguments])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(f"evenlane: {sentence}")
    assert not (tmp_path / "d").exists()


def test_settings_for_a_secure_etcd_are_refused_at_once(capsys, tmp_path):
    """For example those of production, for which it would wait in vain."""
    config = tmp_path / "prod.toml"
    (tmp_path / "ca.pem").write_text("")
    config.write_text('etcd = "etcd.example:2379"\netcd_ca = "ca.pem"\n')
    assert 2 == run(["up", "--data-dir", str(tmp_path / "d"), "--config", str(config)])
    expected = (
        f"evenlane: etcd_ca (file {config}) is for an etcd with TLS or users, and `up` starts one without: leave it out"
    )
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize("processes", [[], ["--processes", "2"]])
def test_taken_http_port_is_found_before_servers_start(capsys, tmp_path, processes):
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        given = ["--data-dir", str(tmp_path / "d"), *HANDLER, *processes, "--http-port", str(port)]
        assert 1 == run(["up", *given])
    out, err = capsys.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(f"evenlane: port {port} on 127.0.0.1 is in use: choose another --http-port, or stop the")
    assert not (tmp_path / "d").exists()


@pytest.mark.real
@pytest.mark.parametrize("kind", ["nats", "etcd", "mqtt"])
def test_taken_port_of_a_server_has_the_same_exit_code(capsys, tmp_path, kind):
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        assert 1 == run(["up", "--data-dir", str(tmp_path), f"--{kind}-port", str(port)])
    _, err = capsys.readouterr()
    expected = (
        f"port {port} on 127.0.0.1 is in use: choose another --{kind}-port, or stop the process that listens there"
    )
    assert f"evenlane: {expected}\n" == err


def test_addresses_in_variables_are_ignored(capsys, tmp_path, monkeypatch):
    """They are for other commands; `up` fails later, for its port."""
    monkeypatch.setenv("EVENLANE_NATS", "nats://127.0.0.1:1")
    monkeypatch.setenv("EVENLANE_ETCD", "127.0.0.1:1")
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        assert 1 == run(["up", "--data-dir", str(tmp_path / "d"), *HANDLER, "--http-port", str(port)])
    assert f"port {port} on 127.0.0.1 is in use" in capsys.readouterr().err

"""Commands in this process, on servers that all tests share. Each test has an environment of its own."""

import asyncio
import contextlib
import itertools
import os
import sys
from typing import NamedTuple

import psutil
import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.cli.run import supervisor
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.ledger.world import ProcessWorld
from tests.support.cli.fakes import FAKE, PROGRAM, Fakes
from tests.support.golden import Transcript, golden_of

_environments = itertools.count(1)


class SharedServers(NamedTuple):
    nats: NatsServer
    etcd: EtcdServer


@pytest.fixture(scope="session")
def etcd(etcd_server):
    return etcd_server


@pytest.fixture(scope="session")
def servers(nats_server, etcd_server):
    return SharedServers(nats_server, etcd_server)


@pytest.fixture
def evenlane(monkeypatch, tmp_path, capsys):
    """Runs `evenlane ...` in an empty folder: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def evenlane_in_thread(monkeypatch, tmp_path, capsys):
    """`await` it: runs `evenlane ...` next to the event loop of an async test: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    async def command(*arguments):
        code = await asyncio.to_thread(run, list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def golden(request):
    """The golden file of this test."""
    return golden_of(request)


@pytest.fixture
def transcript(request, evenlane, golden, tmp_path):
    """Runs `evenlane ...` and records its output: see tests/support/golden.py."""
    words = {str(tmp_path): "DIR"}
    if "own_env" in request.fixturenames:
        words[request.getfixturevalue("own_env")] = "ENV"
    return Transcript(evenlane, golden, words)


@pytest.fixture
def own_env(monkeypatch):
    """The name of the test's own environment, which commands read from a variable."""
    name = f"e{next(_environments):09}"  # of one length, so that tables have the same width in each run
    monkeypatch.setenv("EVENLANE_ENV", name)
    return name


@pytest.fixture
def on_etcd(etcd, own_env, evenlane, monkeypatch):
    """Runs `evenlane ...` on etcd, in the test's own environment."""
    monkeypatch.setenv("EVENLANE_ETCD", etcd.endpoint)
    return evenlane


@pytest.fixture
def env(servers, own_env, evenlane, request, monkeypatch):
    """The test's own environment with a topic acme of 400 QPS, and without a node. Commands read its settings from
    variables; the parameter of the fixture has more settings.
    """
    settings = {"NATS": servers.nats.url, "ETCD": servers.etcd.endpoint, "PARTITIONS": "4"}
    for key, value in (settings | getattr(request, "param", {})).items():
        monkeypatch.setenv(f"EVENLANE_{key}", value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert 0 == evenlane("topics", "set", "acme", "--qps", "400")[0]
    return own_env


@pytest.fixture
async def world(servers, own_env, tmp_path, monkeypatch):
    """Nodes as processes, in the test's own environment, whose settings commands read from variables."""
    async with ProcessWorld(tmp_path, servers=servers, env=own_env) as world:
        for key in ("nats", "etcd"):
            monkeypatch.setenv(f"EVENLANE_{key.upper()}", getattr(world.settings, key)[0])
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        yield world


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "_PROGRAM", PROGRAM)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.05)
    fakes = Fakes(tmp_path)
    yield fakes
    for pid in fakes.pids():  # left by a test that failed
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if FAKE in process.cmdline():
                process.kill()

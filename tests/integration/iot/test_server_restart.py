"""P7, L: nats-server is killed under devices, a gateway and a node, and started again (fault 12)."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evenlane.engine.runtime.embedded.child import guard
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.ring.hashing import partition_of
from examples.iot.devices import Ledger, simulate
from examples.iot.settings import PlatformSettings
from examples.iot.summary import audit
from tests.support import ROOT
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]

PARTITIONS = 4
EVENLANE = str(Path(sys.executable).with_name("evenlane"))


@asynccontextmanager
async def process(*command):
    """A process that is ready, and ends by SIGTERM with exit code 0."""
    running = await asyncio.create_subprocess_exec(
        *guard(), *command, cwd=ROOT, env=os.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert (await asyncio.wait_for(running.stdout.readline(), 60)).startswith(b"ready")
    yield
    running.terminate()
    assert 0 == await asyncio.wait_for(running.wait(), 60)


async def test_what_was_acknowledged_before_and_after_is_stored(tmp_path, monkeypatch):
    async with Servers(tmp_path, mqtt_port=free_port()) as servers:
        for name, value in {
            "EVENLANE_NATS": servers.nats.url,
            "EVENLANE_ETCD": servers.etcd.endpoint,
            "EVENLANE_PARTITIONS": str(PARTITIONS),
            "IOT_MQTT": servers.nats.mqtt,
            "IOT_DATABASE": str(tmp_path / "iot.db"),
        }.items():
            monkeypatch.setenv(name, value)
        node = process(EVENLANE, "run", "--handler", "examples.iot.handlers:app")
        async with process(sys.executable, "-m", "examples.iot", "gateway"), node:
            settings, ledger, stop = PlatformSettings.of(), Ledger(), asyncio.Event()
            subject = settings.subjects.format("data", partition_of("acme", 0, 1, PARTITIONS, "hashed"), "acme")
            devices = [(f"d{number}", "acme", subject) for number in range(20)]
            sending = asyncio.create_task(simulate(devices, settings, ledger, stop, interval=0.1))
            await until(lambda: len(ledger) > 200)
            await servers.nats.kill()
            before = len(ledger)
            await servers.nats.start()
            await until(lambda: len(ledger) > before + 200)
            stop.set()
            await sending
            totals = await until(lambda: (found := audit(settings.database, ledger)).missing == 0 and found)
    assert (len(ledger), 0) == (totals.stored, totals.refused)

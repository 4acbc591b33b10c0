"""Simulated devices: each has a connection of its own by MQTT, and sends readings with QoS 1."""

import asyncio
import itertools
import json
import math
import random
import time
from contextlib import suppress

import aiomqtt

from examples.iot.settings import PlatformSettings
from examples.iot.subjects import to_topic

_AGAIN_S = 1.0


Ledger = set[tuple[str, str]]
"""What nats-server has acknowledged to the devices: project and id of each message."""


class Device:
    """One device of a project. It sends a reading each `interval` seconds, and again until it is acknowledged."""

    def __init__(self, name: str, project: str, topic: str, ledger: Ledger, *, interval: float) -> None:
        self.name, self.project = name, project
        self._topic, self._ledger, self._interval = topic, ledger, interval
        self._numbers = itertools.count(1)

    async def run(self, settings: PlatformSettings, stop: asyncio.Event) -> None:
        """Send until `stop` is set; the last reading is acknowledged, too."""
        host, port = settings.mqtt_address
        reading: dict[str, object] | None = None
        while reading is not None or not stop.is_set():
            try:
                async with aiomqtt.Client(host, port, identifier=self.name) as client:
                    while reading is not None or not stop.is_set():
                        reading = reading or self._measure()
                        await client.publish(self._topic, json.dumps(reading), qos=1)
                        self._ledger.add((self.project, str(reading["id"])))
                        reading = None
                        await _pause(self._interval, stop)
            except aiomqtt.MqttError:
                await asyncio.sleep(_AGAIN_S)

    def _measure(self) -> dict[str, object]:
        number = next(self._numbers)
        return {
            "id": f"{self.name}-{number}",
            "device": self.name,
            "celsius": round(20 + 5 * math.sin(number / 10), 2),
            "sent_at": time.time(),
        }


async def simulate(
    devices: list[tuple[str, str, str]],
    settings: PlatformSettings,
    ledger: Ledger,
    stop: asyncio.Event,
    *,
    interval: float,
) -> None:
    """Run devices, each given as name, project and subject, until `stop` is set. They start one after another."""
    async with asyncio.TaskGroup() as running:
        for name, project, subject in devices:
            device = Device(name, project, to_topic(subject), ledger, interval=interval)
            running.create_task(device.run(settings, stop))
            await asyncio.sleep(min(interval, 5.0) / len(devices) * random.uniform(0.5, 1.5))  # noqa: S311


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)

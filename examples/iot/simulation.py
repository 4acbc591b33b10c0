"""The whole platform for a while: simulated devices, a gateway and a node that are killed, and totals at the end."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from evenlane import EvenlaneError, Producer
from examples.iot.control import close
from examples.iot.devices import Ledger, simulate
from examples.iot.processes import Platform
from examples.iot.settings import PlatformSettings
from examples.iot.summary import Totals, audit

_ALL_STORED_S = 120.0
_LOOK_EACH_S = 0.5


@dataclass(frozen=True)
class Plan:
    """What is simulated. Each device sends a reading each `interval` seconds, for `seconds`."""

    devices: int = 100
    projects: int = 10
    seconds: float = 20.0
    interval: float = 1.0
    kill: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.projects <= self.devices or self.seconds <= 0 or self.interval <= 0:
            raise EvenlaneError(
                f"{self.devices} devices of {self.projects} projects for {self.seconds:g} s, each {self.interval:g} s:"
                " there must be at least one device for each project, and times above 0"
            )


async def run_simulation(
    platform: Platform, settings: PlatformSettings, plan: Plan, say: Callable[[str], None]
) -> Totals:
    """Simulate on a running platform, and return the totals once all that was acknowledged is stored."""
    projects = [f"project-{number:02}" for number in range(plan.projects)]
    async with Producer() as producer:
        subjects = {each: settings.subjects.format("data", producer.home_partition(each), each) for each in projects}
    devices = [
        (f"device-{number:04}", projects[number % len(projects)], subjects[projects[number % len(projects)]])
        for number in range(plan.devices)
    ]
    ledger, stop = Ledger(), asyncio.Event()
    rate = plan.devices / plan.interval
    say(f"{plan.devices:,} devices of {plan.projects} projects send by MQTT, {rate:,.0f} messages per second in all")
    sending = asyncio.create_task(simulate(devices, settings, ledger, stop, interval=plan.interval))
    await _meanwhile(platform, plan, say)
    stop.set()
    await sending
    totals = await _wait_until_stored(settings, ledger)
    await _close_one(projects[0], settings, say)
    return totals


async def _meanwhile(platform: Platform, plan: Plan, say: Callable[[str], None]) -> None:
    """Let time pass; kill a gateway and a node on the way, and start others."""
    third = plan.seconds / 3
    await asyncio.sleep(third)
    if plan.kill:
        await platform.gateways[0].kill()
        say(f"kill -9 {platform.gateways[0].name}: its unacknowledged messages go to the others")
    await asyncio.sleep(third / 2)
    if plan.kill:
        await platform.nodes[0].kill()
        say(f"kill -9 {platform.nodes[0].name}: the others take its partitions over")
        say(f"{(await platform.add_gateway()).name} has come")
    await asyncio.sleep(third * 1.5)


async def _wait_until_stored(settings: PlatformSettings, ledger: Ledger) -> Totals:
    """Return the totals once nothing is missing, or after a long wait."""
    end = time.monotonic() + _ALL_STORED_S
    while True:
        totals = audit(settings.database, ledger)
        if not totals.missing or time.monotonic() > end:
            return totals
        await asyncio.sleep(_LOOK_EACH_S)


async def _close_one(project: str, settings: PlatformSettings, say: Callable[[str], None]) -> None:
    say((await close(project, settings)).sentence())

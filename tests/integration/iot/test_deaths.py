"""P7, P12, L: gateways and nodes that die under load; what was acknowledged to a device is in the database."""

import asyncio

import nats
import pytest

from evenlane import Topics
from evenlane.engine.admin.plan import view
from evenlane.engine.base.config.settings import Settings
from examples.iot.control import announce
from examples.iot.devices import Ledger, simulate
from examples.iot.ingress import CONSUMER, MQTT_STREAM, STREAM
from examples.iot.simulation import Plan, run_simulation
from examples.iot.summary import audit
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]

PROJECTS = ["red", "green", "blue", "grey"]


async def leader(site) -> str:
    environ = site.platform.environ
    settings = Settings(nats=(environ["EVENLANE_NATS"],), etcd=(environ["EVENLANE_ETCD"],))
    return (await view.read(settings)).document["leader"]


async def project_of(site, node: str) -> str:
    """A project that isn't registered yet, whose partition this node owns."""
    for number in range(1_000):
        if await site.owner(name := f"late-{number}") == node:
            return name
    raise AssertionError(f"{node} owns no partition")


async def test_kill_of_gateway_owner_and_leader_loses_nothing(site):
    """P7, L: faults 1 and 6; a registration that is asked for when the owner of its partition dies is answered."""
    stop, ledger = asyncio.Event(), Ledger()
    devices = [(f"d{number}", project, site.subject("data", project)) for number, project in enumerate(PROJECTS * 5)]
    sending = asyncio.create_task(simulate(devices, site.settings, ledger, stop, interval=0.2))
    await until(lambda: set(PROJECTS) == {project for project, _ in ledger})
    await until(lambda: all(site.ids(project) for project in PROJECTS))

    dead = await leader(site)
    late = await project_of(site, dead)
    await site.platform.gateways[0].kill()
    [node] = [each for each in site.platform.nodes if each.name == dead]
    await node.kill()
    answer = await announce(late, site.settings)
    assert ("open", True) == (answer.state, answer.node in {each.name for each in site.platform.nodes} - {dead})

    counted = len(ledger)
    await until(lambda: len(ledger) > counted + 100)
    await site.platform.add_gateway()
    stop.set()
    await sending
    totals = await until(lambda: (found := audit(site.settings.database, ledger)).missing == 0 and found)
    assert (len(ledger), 0) == (totals.stored, totals.refused)


async def test_data_waits_while_nobody_answers(site):
    """P7, L: no node runs, and the gateway that has the data is killed; what devices sent before a close is stored, and
    then the project is closed.
    """
    await announce("patient", site.settings)
    for part in site.platform.nodes + site.platform.gateways:
        await part.kill()
    forgetful = await site.platform.add_gateway()
    sent = {f"n{number}" for number in range(20)}
    for name in sent:
        await site.device_sends("patient", b'{"id": "%s"}' % name.encode())
    await site.publish(site.subject("close", "patient"), b"")
    await until(lambda: are_delivered(site))
    await forgetful.kill()
    assert set() == site.ids("patient")
    await asyncio.gather(site.platform.add_gateway(), site.platform.add_node())
    await until(lambda: sent == site.ids("patient"))
    async with Topics() as topics:
        await until(lambda: is_draining(topics, "patient"))
    assert [] == site.refusals()


async def is_draining(topics: Topics, project: str) -> bool:
    return (await topics.get(project)).state == "draining"


async def are_delivered(site) -> bool:
    """Whether gateways have got all messages, not acknowledged those of devices, and decided about the others."""
    client = await nats.connect(site.settings.evenlane.nats[0])
    devices, others = [await client.jetstream().consumer_info(name, CONSUMER) for name in (MQTT_STREAM, STREAM)]
    await client.close()
    decided = others.num_ack_pending == 0 or others.num_redelivered > 0
    return devices.num_ack_pending == 20 and others.num_pending == 0 and decided


@pytest.mark.timeout(600)
async def test_thousand_devices_of_fifty_projects(site):
    """P7, P12: a gateway and a node are killed meanwhile; all that was acknowledged is stored."""
    printed = []
    plan = Plan(devices=1_000, projects=50, seconds=20, interval=2)
    totals = await run_simulation(site.platform, site.settings, plan, printed.append)
    assert (totals.acknowledged, 0, 0) == (totals.stored, totals.missing, totals.refused)
    assert totals.acknowledged >= 1_000
    assert ["gateway-1", "node-1"] == [each.split()[2].strip(":") for each in printed if each.startswith("kill -9")]
    assert "project-00 is closed" in printed[-1]
    assert 50 == len(site.rows("SELECT DISTINCT project FROM data"))

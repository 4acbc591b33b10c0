"""Tests of a nats-server whose store is wiped while nodes run (F6)."""

import json
import shutil

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from evenlane.engine.telemetry import metric_names
from tests.ledger.handlers import forgive
from tests.ledger.puts import some
from tests.support.until import until

pytestmark = pytest.mark.real

EVENT = "streams were replaced or rolled back"


async def test_wiped_messages_are_counted_by_project(world):
    """F6: each waiting message is counted in the alert's counter, by project, and in one line for all streams. Later
    puts are handled.
    """
    node = await world.node(concurrency=1, http_port=0, log_format="json", log_level="warning")
    await world.topics("acme", "bolt")
    producer = await world.producer()
    await world.put(producer, some("acme", "held", 1, order="held"))
    await until(lambda: world.ids("begin"))
    await world.put(producer, [*some("acme", "m", 30), *some("bolt", "m", 5)])

    async def all_waiting() -> bool:
        return (await numbers(world))(metric_names.BACKLOG) == {"acme": 30, "bolt": 5}

    await until(all_waiting, 30, "the backlog")
    assert {"acme": 0, "bolt": 0} == (await numbers(world))(metric_names.MISSING_MESSAGES)

    await world.servers.nats.kill()
    shutil.rmtree(world.folder / "servers" / "nats")
    await world.servers.nats.start()

    await until(lambda: log_lines(node), 30, "the line")
    assert [(16, 35, {"acme": 30, "bolt": 5}, 0)] == [
        (line["streams"], line["count"], line["projects"], line["others"]) for line in log_lines(node)
    ]

    async def all_counted() -> bool:
        return (await numbers(world))(metric_names.MISSING) == {"": 35}

    await until(all_counted, 30, "the alert's counter")

    async def all_missing() -> bool:
        missing = (await numbers(world))(metric_names.MISSING_MESSAGES)
        assert missing.keys() == {"acme", "bolt"}
        return missing == {"acme": 30, "bolt": 5}

    await until(all_missing, 30, "the missing messages by project")
    forgive(node.ledger)
    new = some("acme", "new", 40)
    await world.put(producer, new)
    await world.handled(*(put.id for put in new))
    assert 0 == await node.stop()
    assert 1 == len(log_lines(node))


def log_lines(node):
    return [json.loads(line) for line in node.log.read_text().splitlines() if EVENT in line]


async def numbers(world):
    """A scrape: a function from a metric to its values by project."""
    async with aiohttp.ClientSession() as client, client.get(f"{await world.address()}/metrics") as answer:
        page = await answer.text()
    samples = [sample for family in parsed(page) for sample in family.samples]

    def of(name):
        found = {}
        for sample in samples:
            if sample.name == name:
                project = sample.labels.get("project", "")
                found[project] = found.get(project, 0) + sample.value
        return found

    return of

"""A handler's own log lines name the message; no other lines do."""

import asyncio
import json
import logging
import threading

import pytest
import structlog
from structlog.testing import LogCapture

from evenlane import MessageFilter, add_message_fields, batch
from evenlane.engine.base import log_setup
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.keyed import QUICK
from tests.support.node.world import World, topic
from tests.support.until import until

FIELDS = {"project", "id", "attempt", "messages"}


@pytest.fixture
def lines():
    """The lines of structlog, with the fields that the processor adds."""
    capture = LogCapture()
    structlog.configure(processors=[add_message_fields, capture])
    yield capture.entries
    structlog.reset_defaults()


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.addFilter(MessageFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records():
    handler, logger = Records(), logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.records
    logger.removeHandler(handler)


def say(event: str) -> None:
    structlog.get_logger("shop").info(event)
    logging.getLogger("shop").info(event)


def found(lines, records, event: str) -> dict:
    """The fields of an event, the same in both logs."""
    [line] = [line for line in lines if line["event"] == event]
    [record] = [record for record in records if record.msg == event]
    fields = {name: value for name, value in line.items() if name in FIELDS}
    assert fields == {name: value for name, value in vars(record).items() if name in FIELDS}
    return fields


async def test_lines_of_an_async_handler_and_its_subtasks_name_the_message(lines, records):
    async def in_subtask():
        say("subtask")

    async def handle(_message):
        say("handler")
        await asyncio.create_task(in_subtask())
        await asyncio.to_thread(say, "thread of its own")

    async with World() as world:
        message_id = await world.put()
        await world.node(handle)
        await world.all_gone()
    expected = {"project": "acme", "id": message_id, "attempt": 1}
    assert [expected] * 3 == [found(lines, records, each) for each in ("handler", "subtask", "thread of its own")]


async def test_lines_of_a_plain_handler_name_the_message(lines, records):
    def handle(_message):
        say(threading.current_thread().name.split()[0])

    async with World() as world:
        message_id = await world.put()
        await world.node(handle)
        await world.all_gone()
    assert {"project": "acme", "id": message_id, "attempt": 1} == found(lines, records, "handler")


@pytest.mark.parametrize("is_async", [True, False])
async def test_lines_of_a_batch_have_the_number_of_messages(lines, records, is_async):
    async def handle(messages):
        say(f"batch of {len(messages)}")

    def handle_in_thread(messages):
        say(f"batch of {len(messages)}")

    async with World() as world:
        await world.put_many(3)
        await world.node(batch(max=3)(handle if is_async else handle_in_thread), concurrency=1)
        await world.all_gone()
    assert {"project": "acme", "messages": 3} == found(lines, records, "batch of 3")


@pytest.mark.parametrize("is_async", [True, False])
async def test_lines_of_a_fallback_name_the_message(lines, records, is_async):
    async def fail(_message):
        raise ValueError

    async def fallback(_message):
        say("fallback")

    def fallback_in_thread(_message):
        say("fallback")

    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as world:
        message_id = await world.put()
        await world.node(fail, fallback=Handler.of(fallback if is_async else fallback_in_thread))
        await world.all_gone()
    assert {"project": "acme", "id": message_id, "attempt": 2} == found(lines, records, "fallback")


async def test_task_that_outlives_its_handler_names_no_message(lines, records):
    """Not even while its worker handles the next message."""
    second, told = asyncio.Event(), asyncio.Event()
    tasks = []

    async def outlive():
        await second.wait()
        say("outlived")
        told.set()

    async def handle(message):
        if message.body == b"1":
            tasks.append(asyncio.create_task(outlive()))
        else:
            second.set()
            await told.wait()

    async with World() as world:
        await world.put(b"1")
        await world.node(handle, concurrency=1)
        await world.all_gone()
        await world.put(b"2")
        await world.all_gone()
    assert {} == found(lines, records, "outlived")


async def test_nodes_own_lines_stay_as_they_are(lines):
    async def fail(_message):
        raise ValueError("no")

    async with World(acme=topic(max_attempts=1)) as world:
        await world.put()
        await world.node(fail)
        await until(world.dead)
        await world.all_gone()
    [failed] = [line for line in lines if line["event"] == "an attempt failed"]
    assert {"project", "id", "attempt", "partition", "epoch", "error", "where", "then", "event", "log_level"} == {
        *failed
    }


async def test_logs_of_the_command_name_the_message(capsys):
    """As `evenlane run` sets them up."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log_setup.setup("json")
    try:
        async with World() as world:
            message_id = await world.put()
            await world.node(lambda _message: say("handler"))
            await world.all_gone()
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [("acme", message_id, 1)] * 2 == [
        (line["project"], line["id"], line["attempt"]) for line in lines if line["event"] == "handler"
    ]


def test_lines_outside_of_a_handler_name_no_message(lines, records):
    say("outside")
    assert {} == found(lines, records, "outside")


async def test_fields_of_a_line_take_precedence(lines):
    async def handle(_message):
        structlog.get_logger().info("own", id="mine")

    async with World() as world:
        await world.put()
        await world.node(handle)
        await world.all_gone()
    assert [("mine", "acme")] == [(line["id"], line["project"]) for line in lines if line["event"] == "own"]

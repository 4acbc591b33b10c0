"""The log lines about messages: one line per decision, a bounded number of lines, and never their contents."""

import asyncio
import json
import logging
import threading

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from evenlane.engine.admin.backlog.drop_client import DropRequest
from evenlane.engine.admin.backlog.drop_responder import DropResponder
from evenlane.engine.base import log_setup
from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.log_tables import events, logged
from tests.support.node.keyed import QUICK, PoisonWorld
from tests.support.node.world import World, topic
from tests.support.until import until

ONCE = {"max_attempts": 1, "backoff": QUICK}
MARK = "S3CRET-PAYLOAD"


@pytest.fixture
def log():
    with capture_logs() as lines:
        yield lines


async def fails(message):
    raise ValueError(f"bad order {message.body!r}")


async def test_failed_attempt_and_dead_letter_are_logged(log):
    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as world:
        message_id = await world.put()
        await world.node(fails)
        await until(world.dead)
        await world.all_gone()
    first = logged(log, "an attempt failed", project="acme", id=message_id, attempt=1, epoch=1)
    assert ("ValueError: bad order b'x'", True) == (first["error"], first["where"].startswith("test_logs_messages.py:"))
    assert first["then"].startswith("again in ")
    dead = logged(log, "dead-lettered", project="acme", id=message_id, attempt=2, reason="failed 2 times")
    assert first["partition"] == dead["partition"]


async def test_errors_text_is_cut_to_one_short_line(log):
    async def handle(_message):
        raise ValueError("line one\nline two " + "x" * 1_000)

    async with World(acme=topic(**ONCE)) as world:
        await world.put()
        await world.node(handle)
        await until(world.dead)
    error = logged(log, "an attempt failed")["error"]
    assert error.startswith("ValueError: line one line two xxx")
    assert len(error) == 200


async def test_error_without_readable_text_is_logged(log):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    async def handle(_message):
        raise Odd

    async with World(acme=topic(**ONCE)) as world:
        await world.put()
        await world.node(handle)
        await until(world.dead)
    assert "Odd: (its text isn't available)" == logged(log, "an attempt failed")["error"]


async def test_traceback_of_a_failed_attempt_is_logged_at_debug(log):
    async with World(acme=topic(**ONCE)) as world:
        message_id = await world.put()
        await world.node(fails)
        await until(world.dead)
    [line] = [line for line in log if line["event"] == "a failed attempt's traceback"]
    assert ("debug", message_id) == (line["log_level"], line["id"])
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith(
        "in fails\n    raise ValueError(f\"bad order {message.body!r}\")\nValueError: bad order b'x'"
    )


async def test_cautious_log_has_the_type_of_an_error_alone(log):
    async with World(acme=topic(**ONCE)) as world:
        await world.put()
        await world.node(fails, error_texts=False)
        await until(world.dead)
    assert "ValueError" == logged(log, "an attempt failed")["error"]
    assert "a failed attempt's traceback" not in events(log)


async def test_invalid_header_is_logged_once_per_project(log):
    """F12: with its value and the error."""
    async with World() as world:
        message_id = await world.put(headers={h.EXPIRES: "1700000000"})
        other = await world.put(headers={h.ATTEMPT: "0"})
        await world.put(headers={h.ATTEMPT: "0"})
        await world.node()
        await world.all_gone()
    dead_lettered = logged(
        log, "a header is not valid: its message goes to the dead letters", project="acme", id=message_id
    )
    assert "Evenlane-Expires" == dead_lettered["header"]
    assert "Evenlane-Expires '1700000000' is not valid: " in dead_lettered["reason"]
    assert "looks like seconds" in dead_lettered["reason"]
    assert dead_lettered["reason"] == logged(log, "dead-lettered", id=message_id)["reason"]
    skipped = logged(log, "a header is not valid, and is passed over", project="acme", id=other, attempt=1)
    assert ("Evenlane-Attempt", 1) == (skipped["header"], events(log).count(skipped["event"]))
    assert {"acme": 1} == logged(log, "more headers are not valid", count=1, others=0)["projects"]


@pytest.mark.parametrize(("error", "reason"), [(Reject("no"), "rejected"), (None, "expired")])
async def test_dead_letter_is_logged_with_its_reason(log, error, reason):
    async def handle(_message):
        raise error

    async with World(acme=topic(**ONCE, ttl=60 if error else 0.001, dead_letter_expired=True)) as world:
        await world.put()
        expired_at = world.store.now() + 2_000_000
        await until(lambda: world.store.now() > expired_at)
        await world.node(handle)
        await until(world.dead)
        await world.all_gone()
    logged(log, "dead-lettered", reason=reason)


async def test_failures_of_a_project_are_logged_a_few_times_and_counted(log):
    async with World(acme=topic(**ONCE), bolt=topic(**ONCE)) as world:
        await world.put_many(300)
        await world.put_many(7, project="bolt")
        await world.node(fails)
        await until(lambda: len(world.dead()) == 307)
        await world.all_gone()
    assert {"acme": 5, "bolt": 5} == {
        project: sum(line["event"] == "dead-lettered" and line["project"] == project for line in log)
        for project in ("acme", "bolt")
    }
    assert 2 == events(log).count("an attempt failed")
    logged(log, "more were dead-lettered", count=297, projects={"acme": 295, "bolt": 2}, others=0)
    logged(log, "more attempts failed", count=305, projects={"acme": 299, "bolt": 6}, others=0)


async def test_pause_of_a_topic_is_logged(log):
    left = [1, 1]

    async def handle(_message):
        if left:
            left.pop()
            raise Pause(0.02, "429\nToo Many Requests " + "x" * 1_000)

    async with World() as world:
        await world.put()
        await world.node(handle)
        await world.all_gone()
    line = logged(log, "a topic pauses", project="acme", seconds=0.02)
    assert line["reason"].startswith("429 Too Many Requests xxx")
    assert len(line["reason"]) <= 200
    logged(log, "topics paused more often", count=1, projects={"acme": 1})


async def test_poison_message_is_logged(log):
    async with PoisonWorld() as world:
        put = await world.put_keys([None] * 2)
        world.deadly = {put[0]}
        await world.run_nodes(4)
    logged(log, "a process died, or lost its lease, with messages in flight: they are handled one at a time", epoch=3)
    logged(log, "a process died with this message in flight: it is tried again", project="acme", id=put[0])
    logged(log, "a message has killed its process: it goes to the dead letters", project="acme", id=put[0], attempt=3)
    logged(log, "dead-lettered", id=put[0], reason="its process died in attempt 3")


async def test_cancelled_handler_is_logged(log):
    async def hangs(_message):
        await asyncio.Event().wait()

    async with World(acme=topic(**ONCE, ack_wait=0.1)) as world:
        await world.put_many(7)
        await world.node(hangs)
        await until(lambda: len(world.dead()) == 7)
    logged(log, "handler cancelled: no sign of life within ack_wait", project="acme", ack_wait_s=0.1)
    logged(log, "more handlers gave no sign of life", count=2, projects={"acme": 2})
    assert "no sign of life" in logged(log, "an attempt failed")["error"]


async def test_timed_out_thread_is_logged(log):
    go = threading.Event()

    def hangs(_message):
        go.wait(20)

    async with World(acme=topic(**ONCE, ack_wait=0.1)) as world:
        await world.put()
        await world.node(hangs, concurrency=8)
        await until(world.dead)
        go.set()
    logged(log, "handler thread given up: no sign of life within ack_wait", project="acme")


async def test_unroutable_message_is_logged(log):
    async with World() as world:
        await world.store.put("lanes.online.0.acme.0.urgent", b"", MARK.encode())
        await world.node()
        await until(world.dead)
    logged(log, "dead-lettered: a message belongs to no queue", partition=0, subject="lanes.online.0.acme.0.urgent")


async def test_lagging_settle_log_is_logged(log):
    async with World() as world:
        node = await world.node()
        await world.put()
        await until(lambda: node.counters.handled)
        world.server.delay_acks()
        await until(lambda: "settles lag: nothing new is started" in events(log))
        world.server.delay_acks(0)
        await until(lambda: "settles are durable again" in events(log))
    assert logged(log, "settles lag: nothing new is started")["lag_s"] >= 1
    logged(log, "settles are durable again")


async def test_fenced_owner_is_logged(log):
    reasons = []
    async with World() as world:
        await world.node(on_fenced=reasons.append)
        await world.put()
        await world.all_gone()
        await world.node()
        await world.put()
        await until(lambda: reasons)
    logged(log, "fenced: a newer owner settles", epoch=1)


class FakeConnection:
    """Passes requests to the listener, and drops its answers."""

    def listen(self, _subject, on_message):
        self.ask = on_message

    def send(self, _subject, _body):
        pass


@pytest.mark.parametrize("priority", [None, "mid"])
async def test_drop_is_logged(log, priority):
    async with World(acme=topic(state="paused")) as world:
        await world.put_many(3)
        node = await world.node()
        await until(lambda: node.backlog == 3)
        connection = FakeConnection()
        drops = DropResponder(connection, "online", node)
        drops.listen()
        connection.ask(b"ask.online.drop.acme", b"_INBOX.x", b"", msgspec.json.encode(DropRequest(priority)))
        await until(lambda: "dropped" in events(log))
        await drops.close()
    assert {0, 1} == {*logged(log, "dropped", project="acme", messages=3, what=priority or "all")["partitions"]}


@pytest.fixture
def output(capsys):
    """The log as it is written, at debug level."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log_setup.setup("json", "debug")
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


async def test_cautious_log_never_has_payloads_headers_or_keys(output):
    """Whatever a handler raises, if the log has only the types of errors."""

    async def handle(message):
        text = f"{message.body!r} {message.headers} {message.key}"
        match message.id:
            case "retry":
                raise Retry(0.01, text)
            case "reject":
                raise Reject(text)
            case "hang":
                await asyncio.Event().wait()
            case "json":
                json.loads(message.body)
            case "group":
                raise ExceptionGroup(text, [ValueError(text)])
        raise KeyError(text)

    async def fallback(message):
        raise RuntimeError(f"{message.body!r}")

    rules = {"max_attempts": 2, "backoff": QUICK, "ack_wait": 0.1}
    async with World(acme=topic(**rules), short=topic(ttl=0.001, dead_letter_expired=True)) as world:
        headers = {"X-Token": MARK, h.KEY: MARK}
        for message_id in ("retry", "reject", "hang", "json", "group", "key"):
            await world.put(MARK.encode(), id=message_id, headers=headers)
        await world.put(MARK.encode(), project="short", headers=headers)
        await world.store.put("lanes.online.0.acme.0.urgent", b"", MARK.encode())
        node = await world.node(handle, fallback=Handler.of(fallback), error_texts=False)
        await until(lambda: len(world.dead()) == 8)
        await node.stop(1)
    output_text = output()
    lines = [json.loads(line) for line in output_text.splitlines()]
    assert {"an attempt failed", "dead-lettered"} <= {line["event"] for line in lines}
    assert {"retry", "reject", "hang", "json", "group", "key"} == {
        line["id"] for line in lines if line.get("project") == "acme" and "id" in line
    }
    assert MARK not in output_text

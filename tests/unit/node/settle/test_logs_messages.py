"""What the log says of messages: one line for each decision, bounded however many there are, never what they hold."""

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
from evenlane.engine.core.message.message import Pause, Reject, Retry
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.log_tables import events, logged
from tests.support.node.keyed import QUICK, Deadly
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


async def test_a_failed_attempt_and_a_dead_letter(log):
    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as world:
        own = await world.put()
        await world.node(fails)
        await until(world.dead)
        await world.all_gone()
    first = logged(log, "an attempt failed", project="acme", id=own, attempt=1, epoch=1)
    assert ("ValueError", True) == (first["error"], first["where"].startswith("test_logs_messages.py:"))
    assert first["then"].startswith("again in ")
    dead = logged(log, "dead-lettered", project="acme", id=own, attempt=2, reason="failed 2 times")
    assert first["partition"] == dead["partition"]


async def test_headers_that_are_not_valid(log):
    """F12: once for each header of a project; the value, and what is wrong with it."""
    async with World() as world:
        own = await world.put(headers={h.EXPIRES: "1700000000"})
        other = await world.put(headers={h.ATTEMPT: "0"})
        await world.put(headers={h.ATTEMPT: "0"})
        await world.node()
        await world.all_gone()
    buried = logged(log, "a header is not valid: its message goes to the dead letters", project="acme", id=own)
    assert "Evenlane-Expires" == buried["header"]
    assert "Evenlane-Expires '1700000000' is not valid: " in buried["reason"]
    assert "looks like seconds" in buried["reason"]
    assert buried["reason"] == logged(log, "dead-lettered", id=own)["reason"]
    passed = logged(log, "a header is not valid, and is passed over", project="acme", id=other, attempt=1)
    assert ("Evenlane-Attempt", 1) == (passed["header"], events(log).count(passed["event"]))
    assert {"acme": 1} == logged(log, "more headers are not valid", count=1, others=0)["projects"]


@pytest.mark.parametrize(("error", "reason"), [(Reject("no"), "rejected"), (None, "expired")])
async def test_other_deaths_have_their_reasons(log, error, reason):
    async def handle(_message):
        raise error

    async with World(acme=topic(**ONCE, ttl=60 if error else 0.001, dead_letter_expired=True)) as world:
        await world.put()
        await asyncio.sleep(0.002)
        await world.node(handle)
        await until(world.dead)
        await world.all_gone()
    logged(log, "dead-lettered", reason=reason)


async def test_a_tenant_whose_messages_all_fail_gets_a_few_lines_and_a_count(log):
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


async def test_a_topic_that_pauses(log):
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


async def test_a_poison_message(log):
    async with Deadly() as world:
        put = await world.put_keys([None] * 2)
        world.deadly = {put[0]}
        await world.lives(4)
    logged(log, "a process died, or lost its lease, with messages in flight: they are handled one at a time", epoch=3)
    logged(log, "a process died with this message in flight: it is tried again", project="acme", id=put[0])
    logged(log, "a message has killed its process: it goes to the dead letters", project="acme", id=put[0], attempt=3)
    logged(log, "dead-lettered", id=put[0], reason="its process died in attempt 3")


async def test_a_handler_that_gives_no_sign_of_life(log):
    async def hangs(_message):
        await asyncio.Event().wait()

    async with World(acme=topic(**ONCE, ack_wait=0.1)) as world:
        await world.put_many(7)
        await world.node(hangs)
        await until(lambda: len(world.dead()) == 7)
    logged(log, "handler cancelled: no sign of life within ack_wait", project="acme", ack_wait_s=0.1)
    logged(log, "more handlers gave no sign of life", count=2, projects={"acme": 2})
    assert "no sign of life" in logged(log, "an attempt failed")["error"]


async def test_a_thread_that_gives_no_sign_of_life(log):
    go = threading.Event()

    def hangs(_message):
        go.wait(20)

    async with World(acme=topic(**ONCE, ack_wait=0.1)) as world:
        await world.put()
        await world.node(hangs, concurrency=8)
        await until(world.dead)
        go.set()
    logged(log, "handler thread given up: no sign of life within ack_wait", project="acme")


async def test_a_message_that_belongs_to_no_queue(log):
    async with World() as world:
        await world.store.put("lanes.online.0.acme.0.urgent", b"", MARK.encode())
        await world.node()
        await until(world.dead)
    logged(log, "dead-lettered: a message belongs to no queue", partition=0, subject="lanes.online.0.acme.0.urgent")


async def test_settles_that_lag(log):
    async with World() as world:
        node = await world.node()
        await world.put()
        await until(lambda: node.counters.handled)
        world.server.delay_acks()
        await until(lambda: node.settler.lagging)
        world.server.delay_acks(0)
        await until(lambda: not node.settler.lagging)
    assert logged(log, "settles lag: nothing new is started")["lag_s"] >= 1
    logged(log, "settles are durable again")


async def test_who_was_fenced(log):
    async with World() as world:
        first, ended = await world.node(), []
        first._on_fenced = ended.append
        await world.put()
        await world.all_gone()
        await world.node()
        await world.put()
        await until(lambda: ended)
    logged(log, "fenced: a newer owner settles", epoch=1)


class Answers:
    def send(self, _subject, _body):
        pass


@pytest.mark.parametrize("priority", [None, "mid"])
async def test_what_was_dropped(log, priority):
    async with World(acme=topic(state="paused")) as world:
        await world.put_many(3)
        node = await world.node()
        await until(lambda: node.backlog == 3)
        drops = DropResponder(Answers(), "online", node)
        drops._asked(b"ask.online.drop.acme", b"_INBOX.x", b"", msgspec.json.encode(DropRequest(priority)))
        await until(lambda: "dropped" in events(log))
        await drops.close()
    assert {0, 1} == {*logged(log, "dropped", project="acme", messages=3, what=priority or "all")["partitions"]}


@pytest.fixture
def output(capsys):
    """All that is logged, at debug level, as it is written."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    log_setup.setup("json", "debug")
    yield lambda: capsys.readouterr().err
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


async def test_no_payload_header_or_key_is_ever_in_the_log(output):
    """Whatever becomes of a message, and whatever its handler says of it."""

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
        for own in ("retry", "reject", "hang", "json", "group", "key"):
            await world.put(MARK.encode(), id=own, headers=headers)
        await world.put(MARK.encode(), project="short", headers=headers)
        await world.store.put("lanes.online.0.acme.0.urgent", b"", MARK.encode())
        node = await world.node(handle, fallback=Handler.of(fallback))
        await until(lambda: len(world.dead()) == 8)
        await node.stop(1)
    output_text = output()
    lines = [json.loads(line) for line in output_text.splitlines()]
    assert {"an attempt failed", "dead-lettered"} <= {line["event"] for line in lines}
    assert {"retry", "reject", "hang", "json", "group", "key"} == {
        line["id"] for line in lines if line.get("project") == "acme" and "id" in line
    }
    assert MARK not in output_text

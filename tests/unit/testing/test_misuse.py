"""One sentence for each way to use the test kit wrongly, and for handlers that don't end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import datetime

import pytest
import uvloop

from evenlane import ConfigError, Evenlane, EvenlaneError, InvalidName, UnknownProject
from evenlane.engine.errors import InvalidTopic
from evenlane.testing import Stuck, TestApp

TOPICS = {"acme": {"qps": 100}}


async def handle(message):
    pass


async def _open(app):
    async with app:
        pass


async def test_a_test_app_is_used_once():
    app = TestApp(handle, topics=TOPICS)
    await _open(app)
    with pytest.raises(ConfigError, match="this TestApp has been used: make another one"):
        await _open(app)


async def test_a_test_app_works_inside_of_async_with_only():
    app = TestApp(handle, topics=TOPICS)
    wrong = "this TestApp is not open: use it inside of `async with"
    for call in (app.put("acme"), app.run_until_idle(), app.advance(1), app.replay("acme")):
        with pytest.raises(ConfigError, match=wrong):
            await call
    for look in (lambda: app.why("acme"), lambda: app.backlog("acme"), lambda: app.handled, lambda: app.now):
        with pytest.raises(ConfigError, match=wrong):
            look()
    async with app:
        await app.put("acme", b"x")
        await app.run_until_idle()
    with pytest.raises(ConfigError, match=wrong):
        await app.put("acme")
    assert 1 == len(app.handled)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"topics": None}, "topics must be the fields of each topic by project"),
        ({"topics": ["acme"]}, "topics must be the fields of each topic by project"),
        ({"topics": {"acme": "fast"}}, "topics must be the fields of each topic by project"),
        ({"start": "2026"}, "start must be a datetime, and this is of type str"),
        ({"concurrency": 0}, "concurrency=0 is not valid: it must be a whole number from 1"),
        ({"priorities": ()}, r"priorities=\(\) is not valid: name at least one"),
    ],
)
def test_arguments_that_can_not_work(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        TestApp(handle, **({"topics": TOPICS} | arguments))


async def test_handler_that_ignores_its_cancellation_does_not_keep_the_test_from_ending():
    async def stay(message):
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async def scenario():
        async with TestApp(stay, topics=TOPICS, patience=0.2) as t:
            await t.put("acme")
            await t.run_until_idle()

    with pytest.raises(Stuck, match="has not ended"):
        await scenario()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not others or not (await asyncio.wait(others, timeout=5))[1]


async def test_one_test_app_at_a_time():
    async with TestApp(handle, topics=TOPICS):
        with pytest.raises(ConfigError, match="another TestApp is open in this process: one at a time"):
            await _open(TestApp(handle, topics=TOPICS))
    await _open(TestApp(handle, topics=TOPICS))


def test_uvloop_is_refused():
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        pytest.raises(ConfigError, match=r"needs the event loop of asyncio itself, and this one is a uvloop\.Loop"),
    ):
        runner.run(_open(TestApp(handle, topics=TOPICS)))


@pytest.mark.parametrize(
    ("topics", "error", "text"),
    [
        ({"acme": {}}, InvalidTopic, "the topic of project 'acme' is not valid: qps is missing"),
        ({"acme": {"qps": 0}}, InvalidTopic, "the topic of project 'acme' is not valid: qps must be"),
        ({"acme": {"qps": 1, "colour": 1}}, InvalidTopic, "colour is not a field of a topic"),
        ({"a.b": {"qps": 1}}, InvalidName, r"project 'a\.b' is not valid"),
    ],
)
def test_a_topic_that_is_not_valid_is_named(topics, error, text):
    with pytest.raises(error, match=text):
        TestApp(handle, topics=topics)


async def test_a_project_without_a_topic_is_unknown():
    async with TestApp(handle, topics=TOPICS) as t:
        for call in (t.put("other", b"x"), t.replay("other")):
            with pytest.raises(UnknownProject, match="project 'other' has no topic in environment 'test'"):
                await call
        with pytest.raises(UnknownProject, match="project 'other' has no topic"):
            t.why("other")


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1", True])
async def test_time_does_not_go_back(seconds):
    async with TestApp(handle, topics=TOPICS) as t:
        with pytest.raises(ConfigError, match="give seconds from 0"):
            await t.advance(seconds)


def test_a_start_needs_a_time_zone():
    with pytest.raises(ConfigError, match="start 2026-01-01T00:00:00 has no time zone"):
        TestApp(handle, topics=TOPICS, start=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_an_application_without_handlers_is_refused():
    with pytest.raises(ConfigError, match="the application has no handlers"):
        await _open(TestApp(Evenlane(), topics=TOPICS))
    await _open(TestApp(handle, topics=TOPICS))


async def test_a_handler_that_waits_for_ever_is_named():
    async def wait(_message):
        await asyncio.Event().wait()

    app = TestApp(wait, topics={"acme": {"qps": 100, "ack_wait": 3_600}})
    async with app as t:
        await t.put("acme", b"x", id="m1")
        with pytest.raises(
            EvenlaneError, match="wait has not ended within 600 s of the test's time, with message 'm1'"
        ):
            await t.run_until_idle()
        with pytest.raises(AssertionError, match="of project 'acme'"):
            await t.run_until_idle()


async def test_a_thread_that_hangs_is_named():
    ends = threading.Event()

    def hang(_message):
        ends.wait(30)

    app = TestApp(hang, topics=TOPICS, patience=0.2)
    async with app as t:
        await t.put("acme", b"x", id="m1")
        with pytest.raises(Stuck, match=r"hang has not ended within 0\.2 s of real time, with message 'm1'"):
            await t.run_until_idle()
        ends.set()


async def test_a_handler_that_never_lets_go_is_named():
    async def spin(_message):
        while True:
            await asyncio.sleep(0)

    async with TestApp(spin, topics=TOPICS, patience=0.2) as t:
        await t.put("acme", b"x")
        with pytest.raises(Stuck, match=r"spin has not ended within 0\.2 s of real time"):
            await t.run_until_idle()


async def test_a_handler_can_not_let_time_pass():
    async def skip(_message):
        await t.advance(1)

    async with TestApp(skip, topics=TOPICS) as t:
        await t.put("acme", b"x")
        await t.run_until_idle()
        assert "run_until_idle and advance run one after another" in str(t.failed[0].error)


async def test_an_error_in_the_test_passes_through():
    async def fail():
        async with TestApp(handle, topics=TOPICS) as t:
            await t.put("acme", b"x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()

"""P7, P12: whatever somebody publishes, a gateway goes on with the next message."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nats.aio.msg import Msg

from evenlane import EvenlaneError, TopicDraining
from examples.iot.database import Database, connect
from examples.iot.forwarder import Forwarder, NotYet
from examples.iot.gateway import Gateway
from examples.iot.ingress import CONTROL, MQTT
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import Subjects
from tests.examples.iot.standins import NoTopics, Queues, Streams, Wire, ack_of, held
from tests.support.until import until

SETTINGS = PlatformSettings()
GOOD = SETTINGS.subjects.format("data", Queues().home_partition("good"), "good")
ANNOUNCE = SETTINGS.subjects.format("announce", Queues().home_partition("good"))
DEEP = b'{"x": ' + b"[" * 100_000
UNREADABLE = [b'{"id": "\xff"}', b'{"project": "\xff"}', DEEP, b'{"x": %s}' % (b"9" * 50_000)]
ODD_PARTITIONS = ["9" * 5_000, "\u0661\u0662", "0" * 20]

SUBJECTS = (
    st.sampled_from([GOOD, ANNOUNCE])
    | st.text()
    | st.builds(
        SETTINGS.subjects.format,
        st.sampled_from(["announce", "close", "data"]),
        st.integers(0, 7) | st.text("0123456789\u0661\u0662", min_size=1) | st.sampled_from(ODD_PARTITIONS),
        st.sampled_from(["good", "_bad"]) | st.text(),
    )
)
BODIES = st.binary() | st.sampled_from(UNREADABLE) | st.text().map(lambda text: f'{{"project": "{text}"}}'.encode())


def forwarder(wire, streams, queues=None):
    return Forwarder("g1", SETTINGS, connection=wire, ingress=streams, producer=queues or Queues(), topics=NoTopics())


class Surprise(Queues):
    """A producer that fails at one body in a way that nobody has foreseen."""

    async def put(self, project, body, **options):
        if body == b"surprise":
            raise RuntimeError("nobody\nhas foreseen it " + "x" * 1_000)
        return await super().put(project, body, **options)


@asynccontextmanager
async def running(path, wire, streams, queues, answered=("good",)):
    """A gateway at work on the messages of the streams. Yields what it says."""
    printed = []
    async with Database(path) as database:
        forwards = forwarder(wire, streams, queues)
        for project in answered:
            forwards.registrations.on_answer(project)
        working = asyncio.create_task(Gateway("g1", forwards, streams, wire, database, printed.append).run(SETTINGS))
        try:
            yield printed
            assert not working.done()
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


@given(subject=SUBJECTS, body=BODIES, source=st.sampled_from([MQTT, CONTROL]))
@example(subject=GOOD, body=UNREADABLE[0], source=MQTT)
@example(subject=GOOD, body=DEEP, source=MQTT)
@example(subject=ANNOUNCE, body=UNREADABLE[1], source=CONTROL)
@example(subject=ANNOUNCE, body=DEEP, source=CONTROL)
@example(subject=Subjects().format("data", ODD_PARTITIONS[0], "good"), body=b"", source=MQTT)
def test_forwarder_raises_only_errors_of_evenlane(subject, body, source):
    """Any subject and any body, taken and refused: an error of another kind would end the gateway's worker."""

    async def forward():
        wire = Wire()
        forwards, message = forwarder(wire, Streams()), held(wire, subject, body, source=source)
        forwards.registrations.on_answer("good")
        with suppress(EvenlaneError):
            await forwards.forward(message)
        await forwards.answer_refusal(message, "why not")

    asyncio.run(forward())


class Late(Queues):
    """A producer that doesn't know yet that the project was opened again."""

    async def put(self, project, body, **options):
        raise TopicDraining.of(project, "online", deleted=False)


async def test_announcement_of_a_project_that_was_just_opened_is_put_later():
    """P7: it isn't refused; the next delivery finds a producer that knows."""
    wire = Wire()
    announcement = held(wire, ANNOUNCE, b'{"project": "good"}', source=CONTROL)
    with pytest.raises(NotYet, match="'good' is draining"):
        await forwarder(wire, Streams(), Late()).forward(announcement)


async def test_unreadable_messages_end_no_worker(tmp_path):
    """More of them than there are workers; each is either put or kept with a sentence, and acknowledged."""
    wire, queues = Wire(), Queues()
    bad = [(GOOD, body) for body in UNREADABLE] * 5 + [(ANNOUNCE, body) for body in UNREADABLE] * 5
    bad += [(SETTINGS.subjects.format("data", partition, "good"), b"odd") for partition in ODD_PARTITIONS] * 5
    messages = [held(wire, *each, number) for number, each in enumerate([*bad, (GOOD, b"last")])]
    async with running(tmp_path / "iot.db", wire, Streams(*messages), queues) as printed:
        await until(lambda: {ack_of(number) for number in range(len(messages))} <= set(wire.published))
    assert b"last" in queues.put_bodies
    assert 20 == sum(body in UNREADABLE for body in queues.put_bodies)
    rows = connect(tmp_path / "iot.db").execute("SELECT subject, body FROM refused").fetchall()
    assert sorted(bad[20:]) == sorted(rows)
    assert all(line.startswith("g1 refused a message on ") and len(line) < 600 for line in printed[1:])
    assert 1 + len(rows) == len(printed)


async def test_unforeseen_error_refuses_the_message(tmp_path):
    """With its reason, as often as there are workers and more."""
    wire, queues = Wire(), Surprise()
    bodies = [b"surprise"] * 40 + [b"last"]
    messages = [held(wire, GOOD, body, number) for number, body in enumerate(bodies)]
    async with running(tmp_path / "iot.db", wire, Streams(*messages), queues) as printed:
        await until(lambda: {ack_of(number) for number in range(41)} <= set(wire.published))
    assert [b"last"] == queues.put_bodies
    reasons = connect(tmp_path / "iot.db").execute("SELECT reason FROM refused").fetchall()
    assert 40 == len(reasons)
    assert all("RuntimeError: nobody\\nhas foreseen it xxx" in reason and len(reason) < 300 for (reason,) in reasons)
    assert 41 == len(printed)


class Hanging(Queues):
    """A producer whose puts hang for the projects `stuck-...`."""

    async def put(self, project, body, **options):
        if project.startswith("stuck"):
            await asyncio.Event().wait()
        return await super().put(project, body, **options)


@pytest.mark.parametrize("stuck", [1, 2, 5])
async def test_projects_whose_puts_hang_hold_up_no_other(tmp_path, stuck):
    """P7, E1: such as one with a full backlog. What is beyond their share of the workers is delivered later."""
    wire, queues = Wire(), Hanging()
    names = [f"stuck-{number % stuck}" for number in range(500)] + ["good"] * 50
    messages = [
        held(wire, SETTINGS.subjects.format("data", queues.home_partition(name), name), name.encode(), number)
        for number, name in enumerate(names)
    ]
    async with running(tmp_path / "iot.db", wire, Streams(*messages), queues, answered={*names}) as printed:
        await until(lambda: len(queues.put_bodies) == 50)
    assert {b"good"} == {*queues.put_bodies}
    delayed = sum(payload.startswith(b"-NAK") for _, payload in wire.published)
    assert MQTT.workers // 2 <= 500 - delayed < MQTT.workers
    assert 1 == len(printed)


async def test_message_that_can_neither_be_put_nor_kept_is_delivered_again(tmp_path):
    """The database refuses the row for a reason of its own."""
    wire, queues = Wire(), Queues()
    messages = [held(wire, "\ud800", b"", number) for number in range(40)] + [held(wire, GOOD, b"last", 40)]
    async with running(tmp_path / "iot.db", wire, Streams(*messages), queues) as printed:
        await until(lambda: len([each for each in wire.published if each[0].startswith("$JS.ACK")]) == 41)
    assert [b"last"] == queues.put_bodies
    assert 40 == sum(payload.startswith(b"-NAK") for _, payload in wire.published)
    assert all("can't take a message on \\ud800 now" in line for line in printed[1:])


@pytest.mark.parametrize("body", UNREADABLE, ids=["id", "project", "deep", "number"])
async def test_unreadable_answer_is_ignored(tmp_path, body):
    """Anybody may publish on the subject of answers."""
    wire = Listening()
    async with running(tmp_path / "iot.db", wire, Streams(), Queues()):
        await until(lambda: wire.on_answer)
        await wire.on_answer(Msg(_client=wire, subject="x", data=body))


class Listening(Wire):
    """A connection that knows who waits for answers."""

    on_answer = None

    async def subscribe(self, subject, *, cb=None, **options):
        self.on_answer = cb or self.on_answer
        return await super().subscribe(subject, **options)

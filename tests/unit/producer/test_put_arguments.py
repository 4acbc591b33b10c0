"""Arguments of a put: due time and expiry, names, headers and body; wrong ones are refused before the wire (K6, P8)."""

from datetime import UTC, datetime, timedelta

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, InvalidPut, PayloadTooLarge, ProducerClosed
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.support.producer_world import ProducerWorld
from tests.unit.producer.test_put import put_one

SECOND = 1_000_000_000


# ---- due time and expiry


async def test_delayed_message_goes_to_delay_stream(world):
    """K1: put with a delay."""
    message = await put_one(world, "acme", b"", group=3, delay=90.5, ttl=10)
    due = world.now + 90_500_000_000
    assert (
        f"later.online.{partition_of('acme', 3, 1, 16, 'hashed')}.acme.3.mid.{due // (3600 * SECOND)}"
        == message.subject
    )
    assert (str(due), str(due + 10 * SECOND)) == (
        h.value(message.headers, h.DUE),
        h.value(message.headers, h.EXPIRES),
    )


async def test_due_time_may_be_number_or_datetime(world):
    """K1: put with a due time."""
    moment = datetime(2026, 1, 31, 8, 0, 0, 5, tzinfo=UTC)
    async with world.producer() as producer:
        await producer.put("acme", b"", due=moment)
        await producer.put("acme", b"", due=1_769_846_400_000_005_000)
        await producer.put("acme", b"", due=moment.astimezone(tz=None) + timedelta(0))
    assert {"1769846400000005000"} == {h.value(message.headers, h.DUE) for message in world.stored()}


@pytest.mark.parametrize("when", [{"delay": 0}, {"due": 1_699_999_940 * SECOND}, {"due": 1_700_000_000 * SECOND}])
async def test_message_due_now_or_a_minute_ago_goes_to_lane(world, when):
    """K1: the producer's clock may be behind."""
    message = await put_one(world, "acme", b"", **when)
    assert ("lanes", None) == (message.subject.split(".")[0], h.value(message.headers, h.DUE))


async def test_ttl_counts_from_now_and_defaults_to_topic(world):
    assert str(world.now + 1_500_000_000) == h.value((await put_one(world, "acme", b"", ttl=1.5)).headers, h.EXPIRES)
    async with world.producer() as producer:
        await producer.put("acme", b"later", id="last")
    assert None is next(h.value(m.headers, h.EXPIRES) for m in world.stored() if m.body == b"later")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"delay": -1}, "delay -1 is not a number of seconds from 0 to"),
        ({"delay": float("nan")}, "delay nan is not a number of seconds"),
        ({"delay": float("inf")}, "delay inf is not a number of seconds"),
        ({"delay": True}, "delay True is not a number of seconds"),
        ({"delay": "5s"}, "delay '5s' is not a number of seconds"),
        ({"delay": 10**400}, "is not a number of seconds"),
        ({"delay": 1, "due": 5}, "delay and due are both given: give only one of them"),
        ({"due": -1}, "due -1 is neither a whole number of ns since 1970"),
        ({"due": 1.5}, "due 1.5 is neither a whole number of ns"),
        ({"due": 2**63}, "is neither a whole number of ns"),
        ({"due": float("nan")}, "due nan is neither a whole number of ns"),
        ({"due": "2030-01-01T00:00:00Z"}, "due '2030-01-01T00:00:00Z' is neither a whole number of ns"),
        ({"due": 5}, "due 1970-01-01T00:00:00Z is 1,699,999,999 s in the past, by the store's clock"),
        (
            {"due": 1_699_999_939 * SECOND},
            "due 2023-11-14T22:12:19Z is 61 s in the past, by the store's clock: messages",
        ),
        ({"due": datetime(2020, 1, 1, tzinfo=UTC)}, "due 2020-01-01T00:00:00Z is 122,"),
        ({"due": datetime(9999, 12, 31, tzinfo=UTC)}, "due 9999-12-31T00:00:00+00:00 is not between the years 1970"),
        (
            {"due": datetime(1, 1, 1, tzinfo=UTC)},
            "due 0001-01-01T00:00:00+00:00 is not between the years 1970 and 2262",
        ),
        ({"due": datetime(2026, 1, 1)}, "due 2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        ({"ttl": 0}, "ttl 0 would make the message expire at once"),
        ({"ttl": -5}, "ttl -5 is not a number of seconds"),
        ({"ttl": float("nan")}, "ttl nan is not a number of seconds"),
        ({"due": 2**63 - 1, "ttl": 1}, "ttl 1 from then ends after the year 2262"),
        ({"group": -1}, "group -1 of project 'acme' is not one of its groups: 0 to 7"),
        ({"group": True}, "group True of project 'acme'"),
        ({"group": "1"}, "group '1' of project 'acme'"),
        ({"group": 10**5000}, "group "),
    ],
)
async def test_invalid_argument_is_refused_in_one_sentence(world, arguments, sentence):
    async with world.producer() as producer:
        with pytest.raises(InvalidPut) as error:
            await producer.put("acme", b"", **arguments)
    assert sentence in str(error.value)
    assert [] == world.stored()


# ---- names and headers


@pytest.mark.parametrize("message_id", [5, b"a", "", "a b", "x" * 201])
@pytest.mark.parametrize("protected", [True, False], ids=["protected", "unprotected"])
async def test_invalid_id_is_refused_in_one_sentence(world, message_id, protected):
    """K6: with and without duplicate protection; the batch goes on."""
    async with world.producer(duplicate_protection=protected) as producer:
        refused, stored = await producer.put_many([Put("acme", b"", id=message_id), Put("acme", b"")])
    assert isinstance(refused, InvalidName)
    assert "is not valid: 1 to 200 printable ASCII characters without spaces" in str(refused)
    assert isinstance(stored, Receipt)


BAD_PROJECTS = [
    "*",
    ">",
    ".",
    "",
    " ",
    "a b",
    "a\r\nPUB x 1\r\n",
    "ü",
    "a" * 5_000,
    "$JS",
    "a.b",
    "-a",
    None,
    7,
    [],
]


@pytest.mark.parametrize("project", BAD_PROJECTS, ids=lambda name: repr(name)[:20])
async def test_invalid_project_name_is_refused(world, project):
    """Fault 20: a clear error, nothing is sent, and the connection stays open."""
    if isinstance(project, str):
        world.topics.set(project, '{"qps": 1}')  # even if etcd has such a topic
    async with world.producer() as producer:
        with pytest.raises(InvalidName, match=r"project .* is not valid: 1 to 64 letters, digits") as error:
            await producer.put(project, b"x")
        assert len(str(error.value)) < 250
        assert [] == world.stored()
        await producer.put("acme", b"x")


WIRE = st.text(max_size=300)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(project=WIRE, priority=WIRE, key=WIRE, id_=WIRE, name=WIRE, value=WIRE)
async def test_no_text_breaks_subject_or_header_lines(project, priority, key, id_, name, value):
    """Fault 20: refused, or sent as one subject of six tokens and one line per header."""
    world = ProducerWorld()
    await world.store.open()
    world.topics.set(project, '{"qps": 100}')
    async with world.producer() as producer:
        base = {"project": project, "body": b"x"}
        many = [
            Put(**base),
            Put("acme", b"x", priority=priority),
            Put("acme", b"x", key=key),
            Put("acme", b"x", id=id_),
            Put("acme", b"x", headers={name: value}),
        ]
        outcomes = await producer.put_many(many)
    stored = world.stored()
    assert len(stored) == sum(isinstance(outcome, Receipt) for outcome in outcomes)
    assert all(isinstance(outcome, (Receipt, InvalidName)) for outcome in outcomes)
    for message in stored:
        tokens = message.subject.split(".")
        assert ("lanes", "online", 6) == (tokens[0], tokens[1], len(tokens))
        assert tokens[3] in ("acme", project)
        assert not any(each in message.subject for each in "*> \r\n\t")
        assert message.headers.count(b"\r\n") == 2 + len(h.decode(message.headers))


async def test_headers_are_carried_and_reserved_ones_refused(world):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = await put_one(world, "acme", b"", headers={"traceparent": trace, "X-Shop": "Käse"})
    assert {"traceparent": trace, "X-Shop": "Käse"} == h.decode_user(message.headers)
    async with world.producer() as producer:
        for name in ("Nats-Msg-Id", "nats-rollup", "Evenlane-Due", "a b", "", "a:b", "a\r\nNats-Msg-Id"):
            with pytest.raises(InvalidName, match="header"):
                await producer.put("acme", b"", headers={name: "x"})
        with pytest.raises(InvalidName, match="not a single line of text"):
            await producer.put("acme", b"", headers={"a": "x\r\nNats-Rollup: all"})


# ---- bodies


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab"), b"ab"])
async def test_body_may_be_any_bytes_like_object(world, body):
    assert b"ab" == (await put_one(world, "acme", body)).body


async def test_text_body_error_suggests_encoding(world):
    async with world.producer() as producer:
        with pytest.raises(
            TypeError, match=r"must be bytes, and this one is text: encode it, for example with body.encode\(\)"
        ):
            await producer.put("acme", "text")
        with pytest.raises(TypeError, match="of type NoneType"):
            await producer.put("acme", None)
        outcomes = await producer.put_many([Put("acme", "text"), Put("acme", b"x")])
    assert [TypeError, Receipt] == [type(outcome) for outcome in outcomes]


async def test_too_large_message_error_names_both_sizes(world):
    world.server.max_payload = 1_000
    async with world.producer() as producer:
        with pytest.raises(PayloadTooLarge, match=r"has 1,0\d\d bytes, 1,000 of body .* takes at most 1,000"):
            await producer.put("acme", b"x" * 1_000)
    assert [] == world.stored()


async def test_key_and_group_exclude_each_other(world):
    async with world.producer() as producer:
        with pytest.raises(InvalidPut, match="names both a key and a group: give one of them"):
            await producer.put("acme", b"", key="k", group=1)


@pytest.mark.parametrize("field", ["id", "key"])
async def test_names_must_be_text(world, field):
    async with world.producer() as producer:
        with pytest.raises(InvalidName, match=f"{field} 5 is not valid: .*; it must be text, and this is of type int"):
            await producer.put("acme", b"", **{field: 5})


async def test_put_before_open_says_so(world):
    with pytest.raises(ProducerClosed, match="this producer is not open yet: put inside `async with"):
        await world.producer().put("acme", b"")


def test_logs_of_a_program_go_to_stderr(world, capsys):
    world.producer()
    structlog.get_logger().info("connected")
    out, err = capsys.readouterr()
    assert (out, "connected" in err) == ("", True)

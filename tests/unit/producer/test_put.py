"""The producer: what goes over the wire, what is refused before, and what becomes of it (K6, P8)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, InvalidPut, PayloadTooLarge, TopicDraining, UnknownProject
from evenlane.engine.producer.put import Put
from evenlane.quota.topics.topic import delete
from evenlane.ring.hashing import group_of, partition_of
from tests.support.producer_world import CLUSTER_CONFIG, ProducerWorld

SECOND = 1_000_000_000


async def one(world, *arguments, **options):
    """Put it and return it as the store has it."""
    async with world.producer() as producer:
        await producer.put(*arguments, **options)
    [message] = world.stored()
    return message


# ---- where it goes


async def test_a_put_returns_when_the_store_has_acknowledged_and_says_where(world):
    async with world.producer() as producer:
        receipt = await producer.put("acme", b"hello", group=3)
    partition = partition_of("acme", 3, 1, 16)
    assert Receipt(f"LANES_online_{partition}", 1, duplicate=False) == receipt
    [message] = world.stored()
    assert (f"lanes.online.{partition}.acme.3.mid", b"hello") == (message.subject, message.body)


async def test_messages_of_a_key_go_to_one_group_by_the_documented_formula(world):
    """K6: the same key, the same group."""
    async with world.producer() as producer:
        await producer.put_many(Put("acme", b"", key=f"k{number % 10}") for number in range(100))
    groups: dict[str, set[str]] = {}
    for message in world.stored():
        groups.setdefault(h.value(message.headers, h.KEY), set()).add(message.subject.split(".")[4])
    assert {f"k{number}": {str(group_of(f"k{number}", 8))} for number in range(10)} == groups


async def test_without_a_key_groups_take_turns(world):
    """K6."""
    async with world.producer() as producer:
        await producer.put_many(Put("acme", b"") for _ in range(80))
    groups = [message.subject.split(".")[4] for message in world.stored()]
    assert {str(number): 10 for number in range(8)} == {group: groups.count(group) for group in groups}


async def test_a_group_named_outright_wins_over_the_key(world):
    """K6: the group may be named outright."""
    message = await one(world, "acme", b"", key="k", group=5)
    assert ("5", "k") == (message.subject.split(".")[4], h.value(message.headers, h.KEY))


async def test_an_id_put_again_meets_itself_whoever_puts_it(world):
    """Streams know their own ids only: with an id but no key, the id names the group."""
    for _ in range(10):
        async with world.producer() as producer:
            await producer.put("acme", b"", id="order-1")
    [message] = world.stored()
    assert str(group_of("order-1", 8)) == message.subject.split(".")[4]


async def test_a_group_taken_away_gets_nothing_more_and_the_change_counts_at_once(world):
    async with world.producer() as producer:
        with pytest.raises(InvalidPut, match="group 8 of project 'acme' is none of its groups: 0 to 7"):
            await producer.put("acme", b"", group=8)
        world.topics.set("acme", '{"qps": 450}')
        await producer.put("acme", b"", group=8)
        world.topics.set("acme", '{"qps": 50}')
        await producer.put_many(Put("acme", b"", key=str(number)) for number in range(20))
    assert ["8", *["0"] * 20] == sorted((m.subject.split(".")[4] for m in world.stored()), reverse=True)


async def test_priority_left_out_is_the_middle_one(world):
    async with world.producer() as producer:
        for priority in (None, "high", "low"):
            await producer.put("acme", b"", group=0, priority=priority)
    assert ["mid", "high", "low"] == [message.subject.split(".")[5] for message in world.stored()]


async def test_environments_are_apart(world):
    """E1: the same put in another environment lies in another stream."""
    other = ProducerWorld(env="sandbox")
    other.store.server = other.server = world.server
    await other.store.open()
    async with world.producer() as online, other.producer() as sandbox:
        await online.put("acme", b"a", id="1")
        receipt = await sandbox.put("acme", b"b", id="1")
    assert (receipt.stream.split("_")[1], receipt.duplicate) == ("sandbox", False)
    assert ([b"a"], [b"b"]) == ([m.body for m in world.stored()], [m.body for m in other.stored()])
    await other.store.close()


# ---- when it is due and when it expires


async def test_a_delayed_message_waits_in_the_later_stream_of_its_partition(world):
    """K1: put with a delay."""
    message = await one(world, "acme", b"", group=3, delay=90.5, ttl=10)
    due = world.now + 90_500_000_000
    assert f"later.online.{partition_of('acme', 3, 1, 16)}.acme.3.mid.{due // (3600 * SECOND)}" == message.subject
    assert (str(due), str(due + 10 * SECOND)) == (
        h.value(message.headers, h.DUE),
        h.value(message.headers, h.EXPIRES),
    )


async def test_a_due_time_may_be_a_number_or_a_datetime(world):
    """K1: put with a due time."""
    moment = datetime(2026, 1, 31, 8, 0, 0, 5, tzinfo=UTC)
    async with world.producer() as producer:
        await producer.put("acme", b"", due=moment)
        await producer.put("acme", b"", due=1_769_846_400_000_005_000)
        await producer.put("acme", b"", due=moment.astimezone(tz=None) + timedelta(0))
    assert {"1769846400000005000"} == {h.value(message.headers, h.DUE) for message in world.stored()}


@pytest.mark.parametrize("when", [{"delay": 0}, {"due": 1_699_999_940 * SECOND}, {"due": 1_700_000_000 * SECOND}])
async def test_what_is_due_now_or_was_a_minute_ago_goes_into_the_lane(world, when):
    """K1: the clock of whoever puts may be behind."""
    message = await one(world, "acme", b"", **when)
    assert ("lanes", None) == (message.subject.split(".")[0], h.value(message.headers, h.DUE))


async def test_ttl_counts_from_now_and_left_out_is_the_topics(world):
    assert str(world.now + 1_500_000_000) == h.value((await one(world, "acme", b"", ttl=1.5)).headers, h.EXPIRES)
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
        ({"delay": 1, "due": 5}, "delay and due are both given: give one of them"),
        ({"due": -1}, "due -1 is neither a whole number of ns since 1970"),
        ({"due": 1.5}, "due 1.5 is neither a whole number of ns"),
        ({"due": 2**63}, "is neither a whole number of ns"),
        ({"due": float("nan")}, "due nan is neither a whole number of ns"),
        ({"due": "2030-01-01T00:00:00Z"}, "due '2030-01-01T00:00:00Z' is neither a whole number of ns"),
        ({"due": 5}, "due 1970-01-01T00:00:00Z is 1,699,999,999 s in the past, by the store's clock"),
        ({"due": 1_699_999_939 * SECOND}, "due 2023-11-14T22:12:19Z is 61 s in the past, by the store's clock: what"),
        ({"due": datetime(2020, 1, 1, tzinfo=UTC)}, "due 2020-01-01T00:00:00Z is 122,"),
        ({"due": datetime(9999, 12, 31, tzinfo=UTC)}, "due 9999-12-31T00:00:00+00:00 is not between the years 1970"),
        (
            {"due": datetime(1, 1, 1, tzinfo=UTC)},
            "due 0001-01-01T00:00:00+00:00 is not between the years 1970 and 2262",
        ),
        ({"due": datetime(2026, 1, 1)}, "due 2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
        ({"ttl": 0}, "ttl 0 would have the message expire at once"),
        ({"ttl": -5}, "ttl -5 is not a number of seconds"),
        ({"ttl": float("nan")}, "ttl nan is not a number of seconds"),
        ({"due": 2**63 - 1, "ttl": 1}, "ttl 1 from then ends after the year 2262"),
        ({"group": -1}, "group -1 of project 'acme' is none of its groups: 0 to 7"),
        ({"group": True}, "group True of project 'acme'"),
        ({"group": "1"}, "group '1' of project 'acme'"),
        ({"group": 10**5000}, "group "),
    ],
)
async def test_a_wrong_argument_is_one_sentence_and_nothing_is_sent(world, arguments, sentence):
    async with world.producer() as producer:
        with pytest.raises(InvalidPut) as error:
            await producer.put("acme", b"", **arguments)
    assert sentence in str(error.value)
    assert [] == world.stored()


# ---- names, ids, headers, bodies

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
async def test_a_project_that_is_no_name_is_refused_before_the_wire(world, project):
    """Fault 20: a clear error, nothing on anyone's subject, and the connection goes on."""
    if isinstance(project, str):
        world.topics.set(project, '{"qps": 1}')  # even if somebody has written such a topic into etcd
    async with world.producer() as producer:
        with pytest.raises(InvalidName, match=r"project .* is not valid: 1 to 64 letters, digits") as error:
            await producer.put(project, b"x")
        assert len(str(error.value)) < 250
        assert [] == world.stored()
        await producer.put("acme", b"x")


WIRE = st.text(max_size=300)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(project=WIRE, priority=WIRE, key=WIRE, id_=WIRE, name=WIRE, value=WIRE)
async def test_whatever_the_names_the_subject_and_the_header_lines_stay_whole(project, priority, key, id_, name, value):
    """Fault 20: either refused, or on the wire as exactly one subject of six words and one line a header."""
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
        words = message.subject.split(".")
        assert ("lanes", "online", 6) == (words[0], words[1], len(words))
        assert words[3] in ("acme", project)
        assert not any(each in message.subject for each in "*> \r\n\t")
        assert message.headers.count(b"\r\n") == 2 + len(h.decode(message.headers))


async def test_ids_are_the_projects_own_and_a_second_put_of_one_is_told(world):
    """Two projects may use the same id; the one that comes twice is stored once."""
    world.topics.set("zeta", '{"qps": 400}')
    async with world.producer() as producer:
        receipts = [await producer.put(project, b"", id="7") for project in ("acme", "zeta", "acme")]
    assert [False, False, True] == [receipt.duplicate for receipt in receipts]
    assert {"acme:7", "zeta:7"} == {h.value(message.headers, h.ID) for message in world.stored()}


async def test_every_message_has_an_id_of_its_own_unless_that_is_turned_off(world):
    async with world.producer() as first, world.producer() as second:
        for producer in (first, second):
            await producer.put_many(Put("acme", b"x") for _ in range(50))
    assert 100 == len({h.value(message.headers, h.ID) for message in world.stored()})
    async with world.producer(duplicate_protection=False) as producer:
        for _ in range(2):
            await producer.put("acme", b"bare", id="same")
    assert [b"", b""] == [message.headers for message in world.stored() if message.body == b"bare"]


async def test_headers_are_carried_and_the_reserved_ones_refused(world):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    message = await one(world, "acme", b"", headers={"traceparent": trace, "X-Shop": "Käse"})
    assert {"traceparent": trace, "X-Shop": "Käse"} == h.decode_user(message.headers)
    async with world.producer() as producer:
        for name in ("Nats-Msg-Id", "nats-rollup", "Evenlane-Due", "a b", "", "a:b", "a\r\nNats-Msg-Id"):
            with pytest.raises(InvalidName, match="header"):
                await producer.put("acme", b"", headers={name: "x"})
        with pytest.raises(InvalidName, match="no single line of text"):
            await producer.put("acme", b"", headers={"a": "x\r\nNats-Rollup: all"})


@pytest.mark.parametrize("body", [bytearray(b"ab"), memoryview(b"ab"), b"ab"])
async def test_a_body_is_anything_like_bytes(world, body):
    assert b"ab" == (await one(world, "acme", body)).body


async def test_a_body_of_text_is_refused_with_what_to_write(world):
    async with world.producer() as producer:
        with pytest.raises(TypeError, match=r"is bytes, and this one is text: encode it, as by body.encode\(\)"):
            await producer.put("acme", "text")
        with pytest.raises(TypeError, match="of type NoneType"):
            await producer.put("acme", None)
        outcomes = await producer.put_many([Put("acme", "text"), Put("acme", b"x")])
    assert [TypeError, Receipt] == [type(outcome) for outcome in outcomes]


async def test_a_message_too_large_is_told_both_sizes_before_it_is_sent(world):
    world.server.max_payload = 1_000
    async with world.producer() as producer:
        with pytest.raises(PayloadTooLarge, match=r"has 1,0\d\d bytes, 1,000 of body .* takes at most 1,000"):
            await producer.put("acme", b"x" * 1_000)
    assert [] == world.stored()


async def test_an_unknown_project_is_told_with_what_to_type(world):
    async with world.producer() as producer:
        expected = "`evenlane topics set nobody --qps 100 --env online` makes one"
        with pytest.raises(UnknownProject, match=f"project 'nobody' has no topic .*: {expected}"):
            await producer.put("nobody", b"")


async def test_a_wrong_priority_is_told_the_valid_ones(world):
    async with world.producer() as producer:
        with pytest.raises(InvalidName, match="priority 'urgent' is none of this cluster's: high, mid, low"):
            await producer.put("acme", b"", priority="urgent")


async def test_a_topic_that_drains_takes_nothing_and_a_paused_one_does(world):
    world.topics.set("acme", '{"qps": 1, "state": "draining"}')
    async with world.producer() as producer:
        with pytest.raises(TopicDraining, match="`evenlane topics resume acme --env online` ends that"):
            await producer.put("acme", b"")
        world.topics.set("acme", '{"qps": 1, "state": "paused"}')
        await producer.put("acme", b"")


async def test_a_deleted_topic_takes_nothing_until_it_is_made_again(world):
    """Fault row 19: whoever puts meanwhile is told."""
    async with world.producer() as producer:
        await producer.put("acme", b"")
        world.topics["acme"] = delete(world.topics["acme"])
        with pytest.raises(TopicDraining, match="'acme' was deleted and takes no messages: `evenlane topics resume"):
            await producer.put("acme", b"")
        world.topics.set("acme", '{"qps": 1}')
        await producer.put("acme", b"")
    assert 2 == len(world.stored())


def test_the_middle_priority_of_the_facts_is_what_the_tests_take_for_it():
    assert "mid" == CLUSTER_CONFIG.priorities[len(CLUSTER_CONFIG.priorities) // 2]

"""Routing of puts: group, partition, priority, environment, id, and the topic's state (K6, P8)."""

import pytest

from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName, InvalidPut, TopicDraining, UnknownProject
from evenlane.engine.producer.put import Put
from evenlane.quota.topics.topic import delete
from evenlane.ring.hashing import group_of, partition_of
from tests.support.producer_world import ProducerWorld


async def put_one(world, *arguments, **options):
    """Put one message and return it as the store has it."""
    async with world.producer() as producer:
        await producer.put(*arguments, **options)
    [message] = world.stored()
    return message


# ---- streams and subjects


async def test_put_returns_receipt_with_stream_and_sequence(world):
    async with world.producer() as producer:
        receipt = await producer.put("acme", b"hello", group=3)
    partition = partition_of("acme", 3, 1, 16, "hashed")
    assert Receipt(f"LANES_online_{partition}", 1, duplicate=False) == receipt
    [message] = world.stored()
    assert (f"lanes.online.{partition}.acme.3.mid", b"hello") == (message.subject, message.body)


async def test_messages_of_key_go_to_one_group(world):
    """K6: the same key, the same group."""
    async with world.producer() as producer:
        await producer.put_many(Put("acme", b"", key=f"k{number % 10}") for number in range(100))
    groups: dict[str, set[str]] = {}
    for message in world.stored():
        groups.setdefault(h.value(message.headers, h.KEY), set()).add(message.subject.split(".")[4])
    assert {f"k{number}": {str(group_of(f"k{number}", 8))} for number in range(10)} == groups


async def test_messages_without_key_rotate_over_groups(world):
    """K6."""
    async with world.producer() as producer:
        await producer.put_many(Put("acme", b"") for _ in range(80))
    groups = [message.subject.split(".")[4] for message in world.stored()]
    assert {str(number): 10 for number in range(8)} == {group: groups.count(group) for group in groups}


async def test_named_group_overrides_key(world):
    """K6: a put may name its group, in place of a key; in a second try under its id, next to it."""
    message = await put_one(world, "acme", b"", key="k", group=5, id="again")
    assert ("5", "k") == (message.subject.split(".")[4], h.value(message.headers, h.KEY))


async def test_repeated_id_of_any_producer_is_stored_once(world):
    """A stream knows only its own ids: without a key, the id decides the group."""
    for _ in range(10):
        async with world.producer() as producer:
            await producer.put("acme", b"", id="order-1")
    [message] = world.stored()
    assert str(group_of("order-1", 8)) == message.subject.split(".")[4]


async def test_changed_number_of_groups_applies_to_next_put(world):
    async with world.producer() as producer:
        with pytest.raises(InvalidPut, match="group 8 of project 'acme' is not one of its groups: 0 to 7"):
            await producer.put("acme", b"", group=8)
        world.topics.set("acme", '{"qps": 450}')
        await producer.put("acme", b"", group=8)
        world.topics.set("acme", '{"qps": 50}')
        await producer.put_many(Put("acme", b"", key=str(number)) for number in range(20))
    assert ["8", *["0"] * 20] == sorted((m.subject.split(".")[4] for m in world.stored()), reverse=True)


async def test_omitted_priority_is_middle_one(world):
    async with world.producer() as producer:
        for priority in (None, "high", "low"):
            await producer.put("acme", b"", group=0, priority=priority)
    assert ["mid", "high", "low"] == [message.subject.split(".")[5] for message in world.stored()]


async def test_unknown_priority_error_names_valid_ones(world):
    async with world.producer() as producer:
        with pytest.raises(InvalidName, match="priority 'urgent' is not one of this cluster's: high, mid, low"):
            await producer.put("acme", b"", priority="urgent")


async def test_environments_are_separate(world):
    """E1: the same put in another environment is in another stream."""
    other = ProducerWorld(env="sandbox")
    other.store.server = other.server = world.server
    await other.store.open()
    async with world.producer() as online, other.producer() as sandbox:
        await online.put("acme", b"a", id="1")
        receipt = await sandbox.put("acme", b"b", id="1")
    assert (receipt.stream.split("_")[1], receipt.duplicate) == ("sandbox", False)
    assert ([b"a"], [b"b"]) == ([m.body for m in world.stored()], [m.body for m in other.stored()])
    await other.store.close()


# ---- ids


async def test_ids_are_scoped_to_project(world):
    """Two projects may use the same id; a repeated one is stored once."""
    world.topics.set("zeta", '{"qps": 400}')
    async with world.producer() as producer:
        receipts = [await producer.put(project, b"", id="7") for project in ("acme", "zeta", "acme")]
    assert [False, False, True] == [receipt.duplicate for receipt in receipts]
    assert {"acme:7", "zeta:7"} == {h.value(message.headers, h.ID) for message in world.stored()}


async def test_each_message_has_unique_id_unless_protection_is_off(world):
    async with world.producer() as first, world.producer() as second:
        for producer in (first, second):
            await producer.put_many(Put("acme", b"x") for _ in range(50))
    assert 100 == len({h.value(message.headers, h.ID) for message in world.stored()})
    async with world.producer(duplicate_protection=False) as producer:
        for _ in range(2):
            await producer.put("acme", b"bare", id="same")
    assert [b"", b""] == [message.headers for message in world.stored() if message.body == b"bare"]


# ---- the topic's state


async def test_unknown_project_error_names_command(world):
    async with world.producer() as producer:
        expected = "`evenlane topics set nobody --qps 100 --env online` creates one"
        with pytest.raises(UnknownProject, match=f"project 'nobody' has no topic .*: {expected}"):
            await producer.put("nobody", b"")


async def test_draining_topic_refuses_puts_and_paused_topic_takes_them(world):
    world.topics.set("acme", '{"qps": 1, "state": "draining"}')
    async with world.producer() as producer:
        with pytest.raises(TopicDraining, match="`evenlane topics resume acme --env online` ends that"):
            await producer.put("acme", b"")
        world.topics.set("acme", '{"qps": 1, "state": "paused"}')
        await producer.put("acme", b"")


async def test_deleted_topic_refuses_puts_until_it_is_set_again(world):
    """Fault row 19: a put meanwhile raises an error."""
    async with world.producer() as producer:
        await producer.put("acme", b"")
        world.topics["acme"] = delete(world.topics["acme"])
        with pytest.raises(TopicDraining, match="'acme' was deleted and takes no messages: `evenlane topics resume"):
            await producer.put("acme", b"")
        world.topics.set("acme", '{"qps": 1}')
        await producer.put("acme", b"")
    assert 2 == len(world.stored())

"""Retries, replays and dead letters of a named subscription are its own, on nodes of two clusters."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import pytest

from evenlane.engine.admin.backlog.drop import DropTask
from evenlane.engine.admin.backlog.drop_client import DropRequest, DropTarget
from evenlane.engine.admin.dead_letters.client import DeadLetterClient
from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.ownership.handoff import handoff_record
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.subscription_filter import SubscriptionFilter
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.engine.telemetry.wait_reasons import count_not_due
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, is_durable, topic
from tests.support.producer_world import accepted
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.node import Node

AUDIT = "online_audit"
_HOUR = 3600 * SECOND


class FakeTopicCache:
    """One accepted topic for all projects, with the nodes' groups."""

    def get(self, _project: str) -> Any:
        return accepted('{"qps": 400, "groups": 10, "spread": 2}')


class ReadingStore(MemoryStore):
    """A store of a named subscription: it removes nothing from the shared streams, as others need the messages."""

    async def purge(self, lane: LaneId, below: int, may: Any = lambda: True) -> None:
        if lane.kind == "again":
            await super().purge(lane, below, may)

    async def delete(self, lane: LaneId, sequence: int) -> None:
        if lane.kind in ("again", "dead"):
            await super().delete(lane, sequence)


class TwoClusters(World):
    """Nodes of the unnamed subscription, and of `audit`. Each writes down what it handles. A cluster's handler fails
    while it is in `failing`.
    """

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.audit_store: MemoryStore = self.new_store(AUDIT)
        await self.audit_store.open()
        await self.audit_store.create_own_streams()
        self.failing = {"online", AUDIT}
        self.seen: dict[str, list[Message]] = {"online": [], AUDIT: []}
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.audit_store.close()

    def new_store(self, cluster: str = "online") -> MemoryStore:
        return ReadingStore(self.server, cluster) if cluster == AUDIT else super().new_store(cluster)

    async def start(self, cluster: str, **options: Any) -> Node:
        async def handle(message: Message) -> None:
            self.seen[cluster].append(message)
            if cluster in self.failing:
                raise ValueError("no")

        return await self.node(handle, cluster=cluster, **options)

    def attempts(self, cluster: str) -> list[tuple[str, int]]:
        return [(message.id, message.attempt) for message in self.seen[cluster]]

    def dead_of(self, cluster: str) -> list[str | None]:
        return [h.value(each.headers, h.ORIGIN) for each in self.server.messages(names.dead_stream(cluster))]

    def again(self) -> int:
        """The messages in audit's stream of retries."""
        return len(self.server.messages(names.again_stream(AUDIT)))

    def dead_letters(self, cluster: str) -> DeadLetterClient:
        store = self.store if cluster == "online" else self.audit_store
        return DeadLetterClient(store, cluster, FakeTopicCache(), CLUSTER_CONFIG)


@pytest.fixture
async def world() -> AsyncIterator[TwoClusters]:
    async with TwoClusters(acme=topic(max_attempts=3), other=topic(max_attempts=3)) as made:
        yield made


async def _both(world: TwoClusters, **options: Any) -> tuple[Node, Node]:
    return await world.start("online"), await world.start(AUDIT, **options)


async def test_message_that_fails_in_two_subscriptions_is_retried_in_each(world: TwoClusters) -> None:
    """K10, X5: two retries each, by which the other isn't reached; and a dead letter each."""
    default, audit = await _both(world)
    await world.put(id="o:7")
    await until(lambda: world.dead_of("online") and world.dead_of(AUDIT), what="both dead letters")
    await world.all_gone()
    await until(lambda: world.again() == 0, what="audit's retries to be removed")
    each = [("o:7", 1), ("o:7", 2), ("o:7", 3)]
    assert each == world.attempts("online")
    assert each == world.attempts(AUDIT)
    [unnamed], [named] = world.dead_of("online"), world.dead_of(AUDIT)
    assert unnamed is not None
    assert unnamed.startswith("LATER_online_")
    assert named is not None
    assert named.startswith("AGAIN_online_audit:")
    assert (2, 1) == (default.counters.retried, default.counters.dead)
    assert (2, 1) == (audit.counters.retried, audit.counters.dead)


async def test_other_subscriptions_retries_are_passed_over(world: TwoClusters) -> None:
    """K10: a retry in the shared delay stream is settled without a handler, and counted as nothing else."""
    world.failing.discard(AUDIT)
    default, audit = await _both(world)
    await world.put(id="o:7")
    await until(lambda: default.counters.dead == 1 and audit.counters.passed_over == 2)
    assert [("o:7", 1)] == world.attempts(AUDIT)
    assert (1, 0) == (audit.counters.handled, audit.counters.failed)
    outcomes = audit.counters.expired, audit.counters.dead, audit.counters.dropped, audit.counters.missing
    assert (0, 0, 0, 0) == outcomes


@pytest.mark.parametrize("cluster", ["online", AUDIT])
async def test_replay_is_of_its_subscription_alone(world: TwoClusters, cluster: str) -> None:
    """K10, K4: a dead letter is replayed in the subscription in which it died."""
    default, audit = await _both(world)
    await world.put(id="o:7")
    await until(lambda: default.counters.dead == audit.counters.dead == 1)
    passed_over = audit.counters.passed_over
    world.failing.clear()
    for seen in world.seen.values():
        seen.clear()
    result = await world.dead_letters(cluster).replay("acme")
    assert (1, []) == (result.replayed, result.failed)
    await until(lambda: world.attempts(cluster) == [("o:7", 1)])
    if cluster == "online":
        await until(lambda: audit.counters.passed_over == passed_over + 1)
    await world.all_gone()
    await until(lambda: world.again() == 0)
    other = AUDIT if cluster == "online" else "online"
    assert [] == world.attempts(other)
    assert ([], 1) == (world.dead_of(cluster), len(world.dead_of(other)))


async def test_replay_is_in_the_stream_of_retries_and_due_now(world: TwoClusters) -> None:
    """K10: in the hour of the replay, so that it is fed at once."""
    audit = await world.start(AUDIT)
    await world.put(id="o:7", group=3, priority="high")
    await until(lambda: audit.counters.dead == 1 and world.again() == 0)
    await audit.stop(0.5)
    assert 1 == (await world.dead_letters(AUDIT).replay("acme")).replayed
    await until(lambda: world.again() == 1)
    [replayed] = world.server.messages(names.again_stream(AUDIT))
    hour = world.store.now() // _HOUR
    partition = world.partition_of(3)
    assert names.again_subject(AUDIT, partition, "acme", 3, "high", hour) == replayed.subject
    assert h.value(replayed.headers, h.DUE) is None


async def test_next_owner_takes_over_retries(world: TwoClusters) -> None:
    """K10, X9: retries that wait when their node dies, in each partition of the stream that they share."""
    world.topics["other"] = topic(max_attempts=3, backoff={"base": 1, "factor": 1, "jitter": 0})
    first = await world.start(AUDIT)
    groups = [world.group_in(p, "other") for p in range(CLUSTER_CONFIG.partitions)]
    for group in groups:
        await world.put(id=f"g{group}", project="other", group=group)
    await until(lambda: first.counters.retried == len(groups) and world.again() == len(groups) and is_durable(first))
    await world.crash(first)
    world.failing.clear()
    world.seen[AUDIT].clear()
    second = await world.start(AUDIT)
    await until(lambda: second.counters.handled == len(groups))
    assert [(f"g{group}", 2) for group in sorted(groups)] == sorted(world.attempts(AUDIT))
    await until(lambda: world.again() == 0)
    for partition in range(CLUSTER_CONFIG.partitions):
        log = await read_settle_log(world.audit_store, LaneId("again", partition))
        assert second.partitions[partition].lane.epoch == log.state.epoch


async def test_stray_is_buried_once(world: TwoClusters) -> None:
    """K10, F4: the unnamed subscription dead-letters a message that belongs to no queue; others settle it."""
    default, audit = await _both(world)
    hour = world.store.now() // _HOUR
    for subject in ("lanes.online.0.acme.0.urgent", f"later.online.0.acme.0.urgent.{hour}"):
        await world.store.put(subject, b"", b"x")
    await until(lambda: default.counters.stray == 2 and audit.counters.passed_over == 2)
    await world.put(id="after", project="other", group=world.group_in(0, "other"))
    await until(lambda: audit.counters.failed and default.counters.failed)
    assert [] == world.dead_of(AUDIT)
    assert [("after", 1)] == world.attempts(AUDIT)[:1]


async def test_delayed_message_from_before_the_subscription_is_passed_over(world: TwoClusters) -> None:
    """K10: of the delayed messages it gets those that become due after its creation began."""
    world.failing.clear()
    await world.put(id="before", due=world.store.now() - 2)
    since = world.store.now() + 1
    await world.put(id="after", due=since + 1)
    audit = await world.start(AUDIT, chosen=SubscriptionFilter(since=since))
    await until(lambda: (audit.counters.handled, audit.counters.passed_over) == (1, 1))
    assert [("after", 1)] == world.attempts(AUDIT)


async def test_messages_of_other_projects_enter_no_queue(world: TwoClusters) -> None:
    """K10: a subscription to some projects settles the others' messages, delayed ones too."""
    world.failing.clear()
    now = world.store.now()
    for project in ("acme", "other"):
        await world.put(id=f"{project}1", project=project)
        await world.put(id=f"{project}2", project=project, due=now)
    audit = await world.start(AUDIT, chosen=SubscriptionFilter(projects=("ac*",)))
    await until(lambda: (audit.counters.handled, audit.counters.passed_over) == (2, 2))
    assert [("acme1", 1), ("acme2", 1)] == sorted(world.attempts(AUDIT))
    assert not audit.queues.of_project("other")


async def test_waiting_retry_is_counted_and_dropped(world: TwoClusters) -> None:
    """K10, X8: a retry that isn't due yet shows as delayed, and `backlog purge` drops it."""
    world.topics["acme"] = topic(max_attempts=3, backoff={"base": 60, "factor": 1, "jitter": 0})
    audit = await world.start(AUDIT)
    await world.put(id="o:7")
    await until(lambda: audit.backlog == 1 and is_durable(audit))
    [queue] = audit.queues.of_project("acme")
    count, due = count_not_due(audit, queue)
    assert 1 == count
    assert 55 * SECOND < due - world.store.now() <= 60 * SECOND
    for number, targets in ((0, []), (1, None)):
        task = DropTask(audit, "acme", DropRequest(targets=targets))
        await task.run()
        assert number == task.word.dropped
    await until(lambda: world.again() == 0)
    assert (0, (0, 0)) == (audit.backlog, count_not_due(audit, queue))


async def test_single_retry_is_cancelled(world: TwoClusters) -> None:
    """K10: by its stream, sequence and time."""
    world.topics["acme"] = topic(max_attempts=3, backoff={"base": 60, "factor": 1, "jitter": 0})
    audit = await world.start(AUDIT)
    await world.put(id="o:7")
    await until(lambda: audit.backlog == 1)
    [retry] = world.server.messages(names.again_stream(AUDIT))
    target = DropTarget("again", world.partition_of(0), retry.sequence, retry.at)
    task = DropTask(audit, "acme", DropRequest(targets=[target]))
    await task.run()
    assert (1, 0, 0) == (task.word.dropped, task.word.busy, task.word.gone)
    await until(lambda: world.again() == 0)
    assert 0 == audit.backlog


async def test_retry_that_runs_at_a_handoff_is_held_for_its_owner(world: TwoClusters) -> None:
    """K10, X9: the next owner doesn't start it, and settles it once the handler has ended."""
    gate, begun = asyncio.Event(), []

    async def handle(message: Message) -> None:
        begun.append(message.attempt)
        if message.attempt == 1:
            raise ValueError("no")
        await gate.wait()

    first = await world.node(handle, cluster=AUDIT, node_id="a")
    number = world.partition_of(0)
    await world.put(id="o:7")
    await until(lambda: begun == [1, 2] and is_durable(first))
    epoch = first.partitions[number].lane.epoch
    first.owned.stop_partition(number)
    state = await first.owned.hand_off(number, epoch)
    assert ["again"] == [kind for kind, each in state.items() if each.running]
    second = await world.idle_node(handle, cluster=AUDIT, node_id="b")
    second.trust(now_ns() + 60 * SECOND)
    await second.owned.open(number, world.next_epoch(), [handoff_record("a", epoch, state)])
    assert [0, 0, 1] == [len(lane.held) for lane in second.partitions[number].lanes]
    gate.set()
    await until(lambda: state["again"].done)
    second.owned.on_held_change(number, handoff_record("a", epoch, state))
    await until(lambda: world.again() == 0)
    assert [1, 2] == begun


async def test_replays_in_the_spill_are_passed_over(world: TwoClusters) -> None:
    """K10: a message of which only the sequence is known is recognised once its payload is read."""
    world.failing.clear()
    for number in range(20):
        origin = {h.ORIGIN: "DEAD_online:7"} if number % 2 else {}
        await world.put(id=f"m{number:02}", headers=origin)
    audit = await world.start(AUDIT, limits=MemoryBudget(read_ahead=2, index=4))
    await until(lambda: (audit.counters.handled, audit.counters.passed_over) == (10, 10))
    assert [(f"m{number:02}", 1) for number in range(0, 20, 2)] == sorted(world.attempts(AUDIT))
    await until(lambda: is_durable(audit) and audit.backlog == 0)


async def test_replay_of_a_key_frees_it(world: TwoClusters) -> None:
    """K10: what is passed over in an ordered topic holds up no later message of its key."""
    world.topics["acme"] = topic(ordered=True)
    world.failing.clear()
    await world.put(id="1", headers={h.KEY: "k"})
    await world.put(id="2", headers={h.KEY: "k", h.ORIGIN: "DEAD_online:7"})
    await world.put(id="3", headers={h.KEY: "k"})
    audit = await world.start(AUDIT)
    await until(lambda: audit.counters.handled == 2)
    assert [("1", 1), ("3", 1)] == world.attempts(AUDIT)
    assert 1 == audit.counters.passed_over

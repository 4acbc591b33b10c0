"""Tests of clean and unclean ends of a node: after a clean one, the next owner records and counts nothing."""

import signal

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster import connections
from evenlane.engine.core.ports import BusyRecord
from tests.ledger import settle_logs
from tests.ledger.handlers import forgive
from tests.ledger.promises import begun_again, never_handled
from tests.ledger.puts import some
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = pytest.mark.real

PARTITIONS = 8
MESSAGES = 200


async def busy(settings: Settings) -> list[BusyRecord]:
    """The in-flight records in the store."""
    store = connections.store(settings, "ledger test")
    await store.open()
    try:
        return await store.busy()
    finally:
        await store.close()


async def test_sigterm_with_a_backlog_leaves_a_clean_end(tmp_path):
    """X11, E6, E11: after SIGTERM with a backlog, each settle log, or a key in etcd, records a clean end. The next
    owner handles the rest at attempt 1 and nothing twice, and neither owner writes an in-flight record.
    """
    async with ProcessWorld(tmp_path, partitions=PARTITIONS, lease_ttl=10) as world:
        first = await world.node(concurrency=4)
        await world.topics("acme", "blue")
        producer = await world.producer()
        for name, order in (("m", "sleep 0.02"), ("held", "held")):  # at SIGTERM, all slots are busy with held ones
            for project in ("acme", "blue"):
                await world.put(producer, some(project, name, MESSAGES // 4, order=order))
        await until(lambda: len(world.ids()) > 20, what="some to be handled")
        first.send(signal.SIGTERM)

        async def is_released() -> bool:
            return not (await world.etcd.list(names.key("online", "owners", ""))).items

        await until(is_released, what="the partitions to be released")  # so it starts nothing more
        forgive(first.ledger)
        assert 0 == await first.ended()

        handled = len(world.ids())
        assert handled < MESSAGES, "no backlog was left"
        logs = await settle_logs.read(world.settings, PARTITIONS)
        owned = {stream: log.log for stream, log in logs.items() if log.log.created}
        assert any(logs[stream].waiting for stream in owned)
        assert {0} == {log.horizon for log in owned.values()}
        released = {item.key for item in (await world.etcd.list(names.key("online", "held"))).items}
        for stream, log in owned.items():  # (etcd has the end if a handler ended late)
            key = names.key("online", "held", stream.rpartition("_")[2], log.epoch)
            assert log.clean or key in released, f"{stream} has no clean end"

        second = await world.node(name="node-b", concurrency=4)
        await until(lambda: set(world.acknowledged) <= set(world.ids()), 60, "the rest to be handled")
        assert 0 == await second.stop()
        assert set() == never_handled(world.acknowledged, world.entries())
        assert [] == begun_again(world.entries())
        assert {1} == {entry.attempt for entry in world.entries()}
        assert [] == await busy(world.settings)


async def test_kill_sets_a_horizon_until_the_backlog_is_handled(tmp_path):
    """X11: after kill -9, the horizon of each stream with messages is its end, until the backlog is handled. The first
    death counts no attempt.
    """
    async with ProcessWorld(tmp_path, partitions=PARTITIONS) as world:
        first = await world.node(concurrency=4)
        await world.topics("acme")
        producer = await world.producer()
        await world.put(producer, some("acme", "m", 20, order="sleep 0.02"))
        await world.put(producer, some("acme", "held", 40, order="held 0.02"))  # so the kill can't come too late
        await until(lambda: len(world.ids()) > 10, what="some to be handled")
        await first.kill()
        forgive(first.ledger)
        before = await settle_logs.read(world.settings, PARTITIONS)

        second = await world.node(name="node-b", concurrency=4)
        fenced = await settle_logs.read(world.settings, PARTITIONS)
        await until(lambda: set(world.acknowledged) <= set(world.ids()), 60, "all to be handled")
        assert await busy(world.settings), "nothing was recorded"
        assert 0 == await second.stop()
        after = await settle_logs.read(world.settings, PARTITIONS)
        for stream, log in before.items():
            if log.waiting:
                assert log.log.clean is False
                assert fenced[stream].log.horizon in {log.state.last, 0}  # 0: all of it is settled by now
            end = after[stream].log
            assert end.clean
            assert end.horizon <= end.settled.watermark  # so no message is below it any more
        assert {1} == {entry.attempt for entry in world.entries()}

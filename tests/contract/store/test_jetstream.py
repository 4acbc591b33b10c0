"""The store port on JetStream: the contract; streams that it refuses; and errors of the server."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost
from evenlane.engine.errors import ConfigError, Unreachable
from evenlane.engine.store.jetstream import stream_configs
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from tests.contract.store.contract import StoreContract
from tests.contract.store.dead_letters import DAY, check_expiry
from tests.support.store.feeding import feeding, fill, subject
from tests.support.store.harness import LANE, LATER, JetStreamHarness, limit_files
from tests.support.until import until

pytestmark = pytest.mark.real


class TestJetStream(StoreContract):
    pass


# ---- streams


async def test_stream_that_would_lose_messages_is_refused_by_name_and_setting(world):
    lane = LANE._replace(partition=50)
    lane_config = stream_configs.lane_config(world.env, lane, "file", 1, 30)
    wrong = [("retention", "workqueue"), ("max_age", 10**12), ("max_msgs", 5), ("max_bytes", 10**6),
             ("discard", "old"), ("allow_rollup_hdrs", True), ("allow_msg_ttl", True)]  # fmt: skip
    for setting, value in wrong:
        await world.api(f"STREAM.CREATE.{lane_config['name']}", lane_config | {setting: value})
        with pytest.raises(ConfigError, match=rf"stream {lane_config['name']} has {setting}"):
            await world.store.prepare([lane])
        await world.api(f"STREAM.DELETE.{lane_config['name']}")


async def test_stream_that_acknowledges_before_it_writes_is_refused_by_name(world):
    """L: `persist_mode: async` on a lane or on the settle log."""
    lane_config = stream_configs.lane_config(world.env, LANE._replace(partition=52), "file", 1, 30)
    await world.api(f"STREAM.CREATE.{lane_config['name']}", lane_config | {"persist_mode": "async"})
    with pytest.raises(
        ConfigError, match=rf"stream {lane_config['name']} has persist_mode 'async', which acknowledges"
    ):
        await world.store.prepare([LANE._replace(partition=52)])
    other = JetStreamHarness(world.server)
    await other.second.open()
    settled_config = stream_configs.settled_config(other.env, "file", 1)
    await other.api(f"STREAM.CREATE.{settled_config['name']}", settled_config | {"persist_mode": "async"})
    with pytest.raises(ConfigError, match=rf"stream {settled_config['name']} has persist_mode 'async'"):
        await other.second.prepare([])
    await other.second.close()


async def test_dead_letter_stream_that_would_lose_messages_is_refused(nats_server):
    world = JetStreamHarness(nats_server)
    await world.second.open()
    dead_config = stream_configs.dead_config(world.env, "file", 1, 30, DAY)
    for setting, value in (("retention", "workqueue"), ("discard", "old"), ("max_msgs", 5)):
        await world.api(f"STREAM.CREATE.{dead_config['name']}", dead_config | {setting: value})
        with pytest.raises(ConfigError, match=rf"stream {dead_config['name']} has {setting}"):
            await world.second.prepare([])
        await world.api(f"STREAM.DELETE.{dead_config['name']}")
    await world.second.close()


async def test_queue_limit_that_deletes_messages_or_refuses_retries_is_refused(world):
    """Without `discard_new_per_subject` the server deletes the oldest message; a delay stream must have no limit."""
    for lane in (LANE._replace(partition=60), LATER._replace(partition=60)):
        name = names.stream(world.env, lane)
        lane_config = stream_configs.lane_config(world.env, lane, "file", 1, 30)
        await world.api(f"STREAM.CREATE.{name}", lane_config | {"max_msgs_per_subject": 5})
        with pytest.raises(ConfigError, match=rf"stream {name} has max_msgs_per_subject 5, which would lose messages"):
            await world.store.prepare([lane])


async def test_stream_with_our_subjects_under_another_name_is_refused(world):
    lane = LANE._replace(partition=51)
    config = {"name": f"MINE_{world.env}", "subjects": [f"lanes.{world.env}.51.>"], "storage": "file"}
    await world.api(f"STREAM.CREATE.MINE_{world.env}", config)
    with pytest.raises(ConfigError, match=names.stream(world.env, lane)):
        await world.store.prepare([lane])


async def test_error_for_stream_without_room_names_disk(world):
    """F5: the server doesn't report the error of its system."""
    limit_files(world.server, 0)
    try:
        with pytest.raises(
            ConfigError, match=r"can't be created: .*: does the server have disk space and write permission\?$"
        ):
            await world.store.prepare([LANE._replace(partition=52)])
    finally:
        limit_files(world.server)


async def test_concurrent_prepares_succeed(world):
    lanes = [LANE._replace(partition=number) for number in range(20, 40)]
    await asyncio.gather(world.store.prepare(lanes), world.second.prepare(lanes))
    assert 0 == (await world.store.state(lanes[-1])).last


# ---- dead letters


async def test_expired_dead_letters_are_removed(nats_server):
    """K4."""
    world = await JetStreamHarness(nats_server, duplicate_window_s=1).open()
    await check_expiry(world)
    await world.close()


@pytest.mark.parametrize(("kept", "text"), [(0, "for ever"), (7 * DAY, "7d"), (30 * DAY, None)])
async def test_other_retention_of_dead_letters_warns_nodes_once(nats_server, kept, text):
    """K4: it is accepted, and a process that only puts gets no warning."""
    world = JetStreamHarness(nats_server)
    only_puts = world.another(feeds_apart=False)
    await only_puts.open()
    dead_config = stream_configs.dead_config(world.env, "file", 1, 30, kept)
    with capture_logs() as quiet:
        await world.api(f"STREAM.CREATE.{dead_config['name']}", dead_config)
        await only_puts.prepare([])
    await world.open()
    with capture_logs() as logged:
        third = world.another()
        await third.open()
        for _ in range(2):
            await third.prepare([])
    warnings = [(entry["kept"], entry["setting"]) for entry in logged if "evenlane dlq keep" in entry["event"]]
    assert ([], [(text, "30d")] if text else []) == (quiet, warnings)
    assert kept == await third.dead_letters_kept()
    for store in (third, only_puts):
        await store.close()
    await world.close()


async def test_streams_of_a_subscription_are_like_those_of_the_unnamed_one(nats_server):
    """L, K10: whoever creates it may have other settings than the nodes. A settle log with fewer replicas than the
    messages would lose what they keep.
    """
    world = JetStreamHarness(nats_server, storage="memory", duplicate_window_s=40, dead_letter_keep_s=3_600)
    await world.open()
    creator = JetStreamStore(NatsOptions(servers=(nats_server.url,)), f"{world.env}_audit")
    await creator.open()
    await creator.create_own_streams()
    for kind in ("SETTLED", "AGAIN", "DEAD", "METER"):
        config = (await world.api(f"STREAM.INFO.{kind}_{world.env}_audit"))["config"]
        assert "memory" == config["storage"]
        if kind in ("AGAIN", "DEAD"):
            assert 40 == config["duplicate_window"] / 10**9
    assert 3_600 == await creator.dead_letters_kept()
    await creator.delete_own_streams()
    await creator.close()
    await world.close()


# ---- the connection


async def test_unreachable_server_is_reported_in_one_sentence():
    store = JetStreamStore(NatsOptions(servers=("nats://127.0.0.1:1",), connect_timeout=0.5), "e")
    with pytest.raises(Unreachable, match=r"NATS at nats://127\.0\.0\.1:1 does not answer"):
        await store.open()


@pytest.mark.parametrize("line", ["NONSENSE", "SUB _INBOX.x"], ids=["verb", "arguments"])
async def test_connection_recovers_from_protocol_error(world, line):
    await fill(world, 1)
    async with feeding(world.store) as taken:
        await taken.got(1)
        before = world.store.incarnation
        # A subject with line ends, which only a test passes to the store.
        world.store.put_then(f"_INBOX.x 0\r\n\r\n{line}\r\nPUB _INBOX.x", b"", b"", lambda _: None)
        await until(lambda: world.store.incarnation > before + 1, what="the connection to be back")
        await fill(world, 1)
        assert [1, 2] == await taken.got(2)


async def test_put_to_subject_of_5_000_bytes_is_lost_alone(world):
    before = world.store.incarnation
    with pytest.raises(Lost):
        await world.store.put(subject(world.env, project="x" * 5_000), b"", b"")
    await until(lambda: world.store.is_connected and world.store.incarnation > before + 1)
    assert [1] == await fill(world, 1)


async def test_unsent_puts_are_not_sent_after_reconnect(world):
    """Their callers got Lost, and have retried by then."""
    await world.server.kill()
    late = []
    while world.store.is_connected:  # the store hasn't noticed the end yet
        late.append(world.store.put(subject(world.env), b"", b"late"))
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(each, Lost) for each in outcomes)
    await world.back()
    assert [1] == await fill(world, 1)

"""The store port on JetStream: the contract, and what only it can show."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.core.lane.settle_record import UnknownVersion
from evenlane.engine.core.ports import Disconnected, LogMoved, Lost
from evenlane.engine.errors import ConfigError, Unreachable
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from evenlane.engine.store.jetstream import streams
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.client.replies import Reply
from evenlane.engine.store.jetstream.pull_consumer import PullConsumer
from evenlane.engine.store.jetstream.scan import Scan
from evenlane.engine.store.jetstream.store import JetStreamStore
from tests.contract.store.contract import StoreContract
from tests.contract.store.dead_letters import DAY, older_goes
from tests.support.store.feeding import Taken, feeding, fill, logged, subject
from tests.support.store.harness import LANE, LATER, JetStreamHarness, limit_files
from tests.support.until import until

pytestmark = pytest.mark.real

END = Reply(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n", b"")


@pytest.fixture
async def world(nats_server):
    made = await JetStreamHarness(nats_server).open()
    yield made
    await made.close()


class TestJetStream(StoreContract):
    pass


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [("retention", "workqueue"), ("max_age", 10**12), ("max_msgs", 5), ("max_bytes", 10**6), ("discard", "old"),
     ("allow_rollup_hdrs", True), ("allow_msg_ttl", True)],
)  # fmt: skip
async def test_a_stream_that_would_lose_messages_is_refused_by_name_and_setting(world, setting, wrong):
    lane = LANE._replace(partition=50)
    name = names.stream(world.env, lane)
    right = streams.lane_config(world.env, lane, "file", 1, 30)
    await world.api(f"STREAM.CREATE.{name}", right | {setting: wrong})
    with pytest.raises(ConfigError, match=rf"stream {name} has {setting}"):
        await world.store.prepare([lane])


@pytest.mark.parametrize(("setting", "wrong"), [("retention", "workqueue"), ("discard", "old"), ("max_msgs", 5)])
async def test_so_is_one_of_dead_letters(nats_server, setting, wrong):
    world = JetStreamHarness(nats_server)
    await world.second.open()
    right = streams.dead_config(world.env, "file", 1, 30, DAY)
    await world.api(f"STREAM.CREATE.{right['name']}", right | {setting: wrong})
    with pytest.raises(ConfigError, match=rf"stream {right['name']} has {setting}"):
        await world.second.prepare([])
    await world.api(f"STREAM.DELETE.{right['name']}")
    await world.second.close()


async def test_dead_letters_go_when_their_time_is_up(nats_server):
    """K4."""
    world = await JetStreamHarness(nats_server, duplicate_window_s=1).open()
    await older_goes(world)
    await world.close()


@pytest.mark.parametrize(("holds", "text"), [(0, "for ever"), (7 * DAY, "7d"), (30 * DAY, None)])
async def test_another_time_for_dead_letters_is_accepted_and_who_handles_messages_is_warned_once(
    nats_server, holds, text
):
    """K4: whoever only puts hears nothing of it."""
    world = JetStreamHarness(nats_server)
    only_puts = world.another(feeds_apart=False)
    await only_puts.open()
    right = streams.dead_config(world.env, "file", 1, 30, holds)
    with capture_logs() as quiet:
        await only_puts._connection.api(f"STREAM.CREATE.{right['name']}", right)
        await only_puts.prepare([])
    await world.open()
    with capture_logs() as reported:
        third = world.another()
        await third.open()
        for _ in range(2):
            await third.prepare([])
    warnings = [(entry["kept"], entry["setting"]) for entry in reported if "evenlane dlq keep" in entry["event"]]
    assert ([], [(text, "30d")] if text else []) == (quiet, warnings)
    assert holds == await third.dead_letters_kept()
    for store in (third, only_puts):
        await store.close()
    await world.close()


async def test_a_stream_with_our_subjects_under_another_name_is_refused(world):
    lane = LANE._replace(partition=51)
    config = {"name": f"MINE_{world.env}", "subjects": [f"lanes.{world.env}.51.>"], "storage": "file"}
    await world.api(f"STREAM.CREATE.MINE_{world.env}", config)
    with pytest.raises(ConfigError, match=names.stream(world.env, lane)):
        await world.store.prepare([lane])


async def test_a_stream_that_has_no_room_to_be_made_says_where_to_look(world):
    """F5: of the system's error the server tells nobody."""
    limit_files(world.server, 0)
    try:
        with pytest.raises(ConfigError, match=r"can't be made: .*: has its disk room, and may it write there\?$"):
            await world.store.prepare([LANE._replace(partition=52)])
    finally:
        limit_files(world.server)


async def test_two_that_prepare_at_the_same_moment_both_succeed(world):
    lanes = [LANE._replace(partition=number) for number in range(20, 40)]
    await asyncio.gather(world.store.prepare(lanes), world.second.prepare(lanes))
    assert 0 == (await world.store.state(lanes[-1])).last


async def test_no_server_is_one_sentence():
    store = JetStreamStore(NatsOptions(servers=("nats://127.0.0.1:1",), connect_timeout=0.5), "e")
    with pytest.raises(Unreachable, match=r"NATS at nats://127\.0\.0\.1:1 does not answer"):
        await store.open()


async def test_a_message_that_fills_a_pull_to_its_last_byte_stalls_nothing(world, monkeypatch):
    """nats-server ends such a pull without a word; unnoticed, the feed would stand still for 12 s."""
    sizes = []
    take = PullConsumer.message_received

    def measure(self, to, reply, headers, body):
        sizes.append(len(to) + len(reply) + len(headers) + len(body))
        take(self, to, reply, headers, body)

    monkeypatch.setattr(PullConsumer, "message_received", measure)
    await world.store.put(subject(world.env), b"", b"")
    async with feeding(world.store) as taken:
        await taken.got(1)
    overhead = sizes[0]
    await world.store.purge(LANE, 2)
    for _ in range(8):
        await world.store.put(subject(world.env), b"", b"x" * (world.store._budget.small // 2 - overhead))
    async with feeding(world.store, start=2) as taken:
        assert list(range(2, 10)) == await taken.got(8, timeout=6)
        assert [] == taken.breaks


async def test_an_end_that_is_deleted_while_the_feed_runs_is_found_all_the_same(world):
    """The rest of what was to come is deleted by somebody between two messages."""
    await fill(world, 3)
    for _ in range(6):
        await world.store.put(subject(world.env), b"", b"x" * (256 << 10))  # more than the first pull brings
    world.store._budget.hold()  # so that the rest waits for its turn
    async with feeding(world.store, until=9) as taken:
        await taken.got(3)
        for sequence in range(4, 10):
            await world.second.delete(LANE, sequence)
        world.store._budget.release()
        await asyncio.wait_for(taken.ended.wait(), 15)
        assert [1, 2, 3] == taken.sequences


async def test_64_feeds_of_1_mib_messages_do_not_cut_the_connection(world):
    """Without a common budget the server cuts a connection on which 64 MB wait."""
    lanes = [LANE._replace(partition=number) for number in range(64, 128)]
    await world.store.prepare(lanes)
    body = b"x" * (world.store.max_payload - 100)
    for lane in lanes:
        to = subject(world.env, lane)
        await asyncio.gather(*(world.store.put(to, b"", body) for _ in range(3)))
    before = world.second.incarnation
    taken = [Taken() for _ in lanes]
    feeds = [world.second.feed(lane, 1, each.sink, each.on_break) for lane, each in zip(lanes, taken, strict=True)]
    for each in taken:
        assert [1, 2, 3] == await each.got(3, timeout=60)
    assert before == world.second.incarnation
    assert [] == [each.breaks for each in taken if each.breaks]
    await asyncio.gather(*(feed.close() for feed in feeds))
    assert (0, world.second._budget.turns) == (world.second._budget._feeds, world.second._budget._free)


@pytest.mark.parametrize(
    "bad", [b"NONSENSE\r\n", b"SUB _INBOX.x\r\n", b"PUB %b 0\r\n\r\n" % (b"s" * 5_000)], ids=["verb", "line", "subject"]
)  # fmt: skip
async def test_an_error_of_the_server_does_not_end_the_connection_for_good(world, bad):
    await fill(world, 1)
    async with feeding(world.store) as taken:
        await taken.got(1)
        before = world.store.incarnation
        world.store._connection._client._pending.append(bad)
        world.store._connection.send("_INBOX.nobody", b"")
        await until(lambda: world.store.incarnation > before + 1, what="the connection to be back")
        await fill(world, 1)
        assert [1, 2] == await taken.got(2)


async def test_a_subject_of_5_000_bytes_is_lost_and_nothing_else(world):
    before = world.store.incarnation
    with pytest.raises(Lost):
        await world.store.put(subject(world.env, project="x" * 5_000), b"", b"")
    await until(lambda: world.store.connected and world.store.incarnation > before + 1)
    assert [1] == await fill(world, 1)


async def test_nothing_unsent_is_sent_to_the_server_that_comes_back(world):
    """Whoever asked was told that it is lost, and has asked again by then."""
    await world.server.kill()
    late = []
    while world.store.connected:  # no word of the end has come yet: these are taken for sent
        late.append(world.store.put(subject(world.env), b"", b"late"))
        await asyncio.sleep(0)
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(each, Lost) for each in outcomes)
    await world.back()
    assert [1] == await fill(world, 1)


async def test_a_deleted_consumer_is_noticed_and_made_anew(world):
    await fill(world, 3)
    async with feeding(world.store) as taken:
        await taken.got(3)
        stream = names.stream(world.env, LANE)
        for consumer in (await world.api(f"CONSUMER.NAMES.{stream}"))["consumers"]:
            await world.api(f"CONSUMER.DELETE.{stream}.{consumer}")
        await taken.until(lambda: taken.breaks)
        await fill(world, 1)
        assert [1, 2, 3, 4] == await taken.got(4)


async def test_a_closed_feed_leaves_no_consumer(world):
    await fill(world, 1)
    async with feeding(world.store) as taken:
        await taken.got(1)
    stream = names.stream(world.env, LANE)

    async def consumers() -> bool:
        return not (await world.api(f"CONSUMER.NAMES.{stream}"))["consumers"]

    await until(consumers, what="the consumers to be gone")


async def test_a_lane_that_was_deleted_is_made_again_and_told_by_its_creation(world):
    await fill(world, 2, LATER, hour=1)
    before = await world.store.state(LATER)
    await world.api(f"STREAM.DELETE.{names.stream(world.env, LATER)}")
    after = await world.store.state(LATER)
    assert (0, True) == (after.last, after.created != before.created)


async def test_a_long_log_is_read_in_one_answer(world):
    """Z6: at a take-over the logs of many partitions are read at once."""
    records = [b"%d" % number for number in range(90)]
    position = 0
    for record in records:
        position = await world.store.append_log(LANE, record, position)
    before = world.store._connection.asked
    assert (records, position) == await logged(world.store, LANE)
    assert world.store._connection.asked - before == 2


@pytest.mark.parametrize("missing", [1, 3])
async def test_a_replica_that_lags_is_not_believed(world, monkeypatch, missing):
    """E12: the leader says where a log ends; what a replica doesn't have yet is read from the leader."""
    position = 0
    for record in (b"1", b"2", b"3"):
        position = await world.store.append_log(LANE, record, position)
    ask_all = Connection.ask_all

    async def lagging(*asked):
        *messages, _ = await ask_all(*asked)
        return [*messages[: len(messages) - missing], END]

    monkeypatch.setattr(Connection, "ask_all", lagging)
    assert ([b"1", b"2", b"3"], position) == await logged(world.store, LANE)


async def test_a_log_is_never_read_short(world, monkeypatch):
    """E12, X11: where the replica that scans lags as well, or an answer has a gap, the take-over begins anew."""
    position = 0
    for record in (b"1", b"2", b"3"):
        position = await world.store.append_log(LANE, record, position)
    ask_all, run = Connection.ask_all, Scan.run

    async def with_a_gap(*asked):
        first, _, *rest = await ask_all(*asked)
        return [first, *rest]

    async def lagging(*asked):
        await ask_all(*asked)
        return [END]

    async def short(scan):
        return (await run(scan))[:-1]

    monkeypatch.setattr(Connection, "ask_all", with_a_gap)
    with pytest.raises(Lost, match="missing"):
        await world.store.read_log(LANE)
    monkeypatch.setattr(Connection, "ask_all", lagging)
    monkeypatch.setattr(Scan, "run", short)
    with pytest.raises(Lost, match="lags"):
        await world.store.read_log(LANE)


async def test_an_answer_that_is_cut_off_is_lost(world):
    """Whoever waits for the rest of an answer is told when the connection goes."""
    connection = world.store._connection
    connection.listen("silent", lambda *_: None)
    waiting = asyncio.ensure_future(connection.ask_all("silent", b""))
    await until(lambda: connection._asked)
    connection._fail_asked("gone")
    with pytest.raises(Disconnected):
        await waiting
    assert not connection._asked


async def test_one_request_finds_what_is_left_of_a_small_queue(world):
    """E14: a take-over reads hundreds of them while the server is busy."""
    await fill(world, 300)
    await world.store.state(LANE)
    before = world.store._connection.asked
    assert list(range(1, 301)) == await world.store.scan(LANE, subject(world.env), 1, 16_384)
    assert world.store._connection.asked - before == 1


async def test_a_stream_with_replicas_is_read_by_a_consumer(world, monkeypatch):
    """E12: a replica that lags would give less than there is, and a refill believes it."""
    monkeypatch.setattr(Connection, "ask_all", None)
    await fill(world, 3)
    await world.store.state(LANE)
    world.store._reads.note_replicas(names.stream(world.env, LANE), 3)
    assert [1, 2, 3] == await world.store.scan(LANE, subject(world.env), 1, 10)


async def test_a_foreign_record_of_the_settle_log_can_be_deleted(world):
    """F4: what the sentence tells an operator to do; the log goes on where it stood before."""
    first = await world.store.append_log(LANE, b"1", 0)
    foreign = (await world.store.put(names.settled_subject(world.env, LANE), b"", b"\x93\x02\x09\x01")).sequence
    stream = names.settled_stream(world.env)
    with pytest.raises(UnknownVersion, match=f"delete it: `nats stream rmm {stream} {foreign}`"):
        await read_settle_log(world.store, LANE)
    with pytest.raises(LogMoved):
        await world.store.append_log(LANE, b"2", first)
    await world.api(f"STREAM.MSG.DELETE.{stream}", {"seq": foreign})
    assert (1, first) == ((log := await read_settle_log(world.store, LANE)).state.unreadable, log.position)
    second = await world.store.append_log(LANE, b"2", first)
    assert ([b"1", b"2"], second) == await logged(world.store, LANE)

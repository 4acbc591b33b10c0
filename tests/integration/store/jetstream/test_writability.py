"""F5: how a store finds out which streams can't be written."""

import asyncio
import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Disconnected, Full, Lost, Refused
from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.engine.store.jetstream.api.values import PubAck, PubError
from evenlane.engine.store.jetstream.client.replies import Reply
from evenlane.engine.store.jetstream.writability import Writability
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, JetStreamHarness
from tests.support.until import until

LOG = "SETTLED_online"
STREAMS = [f"LANES_online_{number}" for number in range(40)]
HEALTHY = b'{"error":{"code":500,"err_code":10057,"description":"stream store EOF"}}'
LEADERLESS = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'
BROKEN = b'{"error":{"code":500,"err_code":10057,"description":"write /a/1.blk: no space left on device"}}'
QUOTA = PubAck("LANES_online_1", error=PubError(10023, "insufficient resources"))


class Answers:
    """Stands in for a connection; `broken` streams can't be written, `silent` ones don't answer."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.silent: set[str] = set()
        self.replies: dict[str, list[bytes]] = {}  # of several servers
        self.asked: Counter[str] = Counter()
        self.up = True

    async def api(self, _verb: str, timeout: float) -> dict:
        if not self.up:
            raise Disconnected("NATS went away before it answered")
        return {"limits": {"max_storage": -1}, "storage": timeout}

    def ask_several(self, to: str, _body: bytes, is_last: Callable[[Reply], bool]) -> asyncio.Future[Reply]:
        stream = to.rpartition(".")[2]
        self.asked[stream] += 1
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        replies = self.replies.get(stream, [BROKEN if stream in self.broken else HEALTHY])
        for reply in [] if stream in self.silent else replies:
            if not answer.done() and is_last(Reply(b"", reply)):
                answer.set_result(Reply(b"", reply))
        return answer


def asking(server: Answers, replicas: int, now: Callable[[], float] = lambda: 0.0) -> Writability:
    return Writability(server, replicas, LOG, now, answer_s=0.05)


@pytest.fixture
def server():
    return Answers()


async def test_of_one_server_all_streams_are_asked_each_time(server):
    writability = asking(server, 1)
    server.broken = {STREAMS[7], STREAMS[39]}
    for _ in range(2):
        assert server.broken == (await writability.of(STREAMS)).keys()
    assert dict.fromkeys(STREAMS, 2) == server.asked
    server.broken = {STREAMS[39]}
    assert {STREAMS[39]} == (await writability.of(STREAMS)).keys()


async def test_of_replicated_streams_some_are_asked_each_time_and_the_broken_ones_always(server):
    """Each question is an entry in a replicated log."""
    writability = asking(server, 3)
    for _ in range(3):
        await writability.of([*STREAMS, LOG])
    assert {*STREAMS, LOG} == server.asked.keys()
    assert (3, 3 * 16) == (server.asked.pop(LOG), server.asked.total())
    server.broken = {STREAMS[7]}
    found = await until(lambda: writability.of(STREAMS), what="its turn")
    assert server.broken == found.keys()
    server.broken = set()
    assert {} == await writability.of(STREAMS), "at the next look, though others were asked longer ago"


@pytest.mark.parametrize("replies", [[LEADERLESS, HEALTHY], [b"no JSON", HEALTHY], [BROKEN, HEALTHY], [HEALTHY]])
async def test_a_replicated_stream_can_be_written_if_any_server_says_so(server, replies):
    """Of three, the one with the broken replica may answer first."""
    server.replies[STREAMS[0]] = replies
    assert {} == await asking(server, 3).of(STREAMS[:2])


@pytest.mark.parametrize(("replies", "why"), [([LEADERLESS], "it has no leader"), ([BROKEN], "the server can't write")])
async def test_a_replicated_stream_is_named_if_no_server_says_otherwise_in_time(server, replies, why):
    server.replies[STREAMS[0]] = replies
    [found] = (await asking(server, 3).of(STREAMS[:1])).values()
    assert found.why.startswith(why)


async def test_where_no_stream_answers_all_stay_as_they_are_known(server):
    """Who may not delete gets no answers, and that is no broken stream."""
    writability = asking(server, 1)
    server.silent, server.broken = {STREAMS[0]}, {STREAMS[1]}
    assert {} == await writability.of(STREAMS[:1])
    server.silent = set()
    before = await writability.of(STREAMS[:2])
    server.silent = set(STREAMS[:2])
    assert before == await writability.of(STREAMS[:2])
    assert [STREAMS[1]] == [*before]


async def test_a_stream_for_which_no_server_answers_is_named_where_others_answer(server):
    """As one of a cluster whose only server is down."""
    writability = asking(server, 1)
    server.silent = {STREAMS[0]}
    assert {STREAMS[0]: ("no server answers for it", False)} == await writability.of(STREAMS[:2])
    server.silent = set()
    assert {} == await writability.of(STREAMS[:2])


async def test_where_no_server_answers_nothing_is_known(server):
    server.up = False
    with pytest.raises(Lost):
        await asking(server, 1).of(STREAMS)


async def test_a_refusal_counts_until_something_is_stored_or_for_30_s(server):
    now = [0.0]
    writability = asking(server, 1, lambda: now[0])
    writability.note(QUOTA)
    assert {"LANES_online_1"} == (await writability.of(STREAMS)).keys()
    writability.note(PubAck("LANES_online_2", 5))
    assert {"LANES_online_1"} == (await writability.of(STREAMS)).keys(), "another stream's"
    writability.note(PubAck("LANES_online_1", 5))
    assert {} == await writability.of(STREAMS)
    writability.note(QUOTA)
    now[0] = 29.9
    assert {"LANES_online_1"} == (await writability.of(STREAMS)).keys()
    now[0] = 30.0
    assert {} == await writability.of(STREAMS)


@pytest.mark.real
@pytest.mark.parametrize(
    ("config", "whose", "all_streams"),
    [
        (
            "accounts { A { users = [{user: a, password: a}], jetstream { max_file: 100KB } } }\nno_auth_user: a",
            "the account's storage quota", True,
        ),
        ("jetstream { max_file_store: 100KB }", "the storage that the server gives JetStream", False),
    ],
    ids=["account", "server"],
)  # fmt: skip
async def test_a_quota_that_is_used_up_is_told_and_recovers_by_itself(tmp_path, config, whose, all_streams):
    """F5: as what a put raises, and of the streams, without a restart once there is room. That the server's is used up
    only refusals tell.
    """
    server = NatsServer(tmp_path, config=config)
    await server.start()
    try:
        world = await JetStreamHarness(server).open()
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        assert {} == await world.store.unwritable(streams)
        text = f"the server takes no more: {whose} is used up"
        puts = [world.store.put(subject(world.env), b"", b"x" * 2_000) for _ in range(60)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert {(Full, text)} == {(type(each), str(each)) for each in outcomes if isinstance(each, Exception)}
        assert dict.fromkeys(streams if all_streams else streams[:1], (text, False)) == await world.store.unwritable(
            streams
        )
        await world.store.purge(LANE, (await world.store.state(LANE)).last)
        assert await fill(world, 1)
        assert {} == await world.store.unwritable(streams)
        await world.close()
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def cluster_of_three(folder):
    """Three servers, each with routes to all."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    made = [
        NatsServer(folder / str(port), config=f"cluster {{ name: C, listen: 127.0.0.1:{port}, routes: [{routes}] }}")
        for port in ports
    ]
    for server in made:
        server.data_dir.mkdir()
    await asyncio.gather(*(server.start() for server in made))
    try:
        yield made
    finally:
        await asyncio.gather(*(server.stop() for server in made if server.running))


async def opened(server):
    """None as long as the servers can't agree on anything."""
    world = JetStreamHarness(server, replicas=3)
    try:
        return await world.open()
    except (ConfigError, Lost, Refused):
        await world.disconnect()


async def unwritable(world, streams):
    with contextlib.suppress(Lost):
        return await world.store.unwritable(streams)


async def have_no_leader(world, streams):
    found = await unwritable(world, streams) or {}
    return dict.fromkeys(streams, "it has no leader") == {
        stream: why.why.partition(",")[0] for stream, why in found.items()
    }


async def is_writable(world, streams):
    return await unwritable(world, streams) == {}


@pytest.mark.real
@pytest.mark.full
async def test_streams_without_a_leader_are_told_and_recover_by_themselves(tmp_path):
    """F5: two of three servers are down. One that comes back makes a majority again."""
    async with cluster_of_three(tmp_path) as (first, *others):
        world = await until(lambda: opened(first), 30, "a majority that makes streams")
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        try:
            assert {} == await world.store.unwritable(streams)
            await asyncio.gather(*(server.kill() for server in others))
            # At first the remaining server doesn't answer for a stream; then it reports that there is no leader.
            await until(lambda: have_no_leader(world, streams), 30, "it to be seen")
            await others[0].start()
            await until(lambda: is_writable(world, streams), 30, "it to be over")
        finally:
            await world.disconnect()


@contextlib.contextmanager
def read_only(folder):
    """The folder can't be written from now on, except through what is open: only root may do that."""
    bound = ["mount", "--bind", str(folder), str(folder)]
    if os.geteuid() or subprocess.run(bound, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.real
@pytest.mark.full
async def test_one_stream_of_many_whose_disk_is_read_only_is_told_and_needs_a_restart(tmp_path):
    """F5: the server finds out with the next file that it needs."""
    server = NatsServer(tmp_path)
    await server.start()
    try:
        world = await JetStreamHarness(server).open()
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        [folder] = tmp_path.glob(f"nats/jetstream/*/streams/{streams[0]}/msgs")
        reported = {streams[0]: ("the server can't write: its disk is read-only", True)}
        with read_only(folder):
            with pytest.raises(Lost):
                await fill_a_file(world)
            assert reported == await world.store.unwritable(streams)
        assert reported == await world.store.unwritable(streams), "nats-server doesn't look again"
        await world.outage()
        await world.back()
        await until(lambda: is_writable(world, streams), 10, "it to be over")
        assert await fill(world, 1)
        await world.close()
    finally:
        await server.stop()


async def fill_a_file(world):
    """Put more than goes into one."""
    for _ in range(40):
        await asyncio.gather(*(world.store.put(subject(world.env), b"", b"x" * 500_000) for _ in range(4)))

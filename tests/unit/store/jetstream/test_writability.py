"""F5: how a store finds out which streams can't be written, on a connection whose answers the test sets."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from evenlane.engine.core.ports import Disconnected, Lost
from evenlane.engine.store.jetstream.api.values import PubAck, PubError
from evenlane.engine.store.jetstream.client.replies import Reply
from evenlane.engine.store.jetstream.writability import Writability
from tests.support.until import until

LOG = "SETTLED_online"
STREAMS = [f"LANES_online_{number}" for number in range(40)]
HEALTHY = b'{"error":{"code":500,"err_code":10057,"description":"stream store EOF"}}'
LEADERLESS = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'
BROKEN = b'{"error":{"code":500,"err_code":10057,"description":"write /a/1.blk: no space left on device"}}'
QUOTA = PubAck("LANES_online_1", error=PubError(10023, "insufficient resources"))


class Answers:
    """A connection on which `broken` streams can't be written, and `silent` ones don't answer."""

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
    return Writability(server, lambda: replicas > 1, LOG, now, answer_s=0.05)


@pytest.fixture
def server():
    return Answers()


async def test_all_streams_of_single_server_are_asked_each_time(server):
    writability = asking(server, 1)
    server.broken = {STREAMS[7], STREAMS[39]}
    for _ in range(2):
        assert server.broken == (await writability.find_unwritable(STREAMS)).keys()
    assert dict.fromkeys(STREAMS, 2) == server.asked
    server.broken = {STREAMS[39]}
    assert {STREAMS[39]} == (await writability.find_unwritable(STREAMS)).keys()


async def test_some_replicated_streams_are_asked_and_broken_ones_always(server):
    """Each request is an entry in a replicated log."""
    writability = asking(server, 3)
    for _ in range(3):
        await writability.find_unwritable([*STREAMS, LOG])
    assert {*STREAMS, LOG} == server.asked.keys()
    assert (3, 3 * 16) == (server.asked.pop(LOG), server.asked.total())
    server.broken = {STREAMS[7]}
    found = await until(lambda: writability.find_unwritable(STREAMS), what="its turn")
    assert server.broken == found.keys()
    server.broken = set()
    assert {} == await writability.find_unwritable(STREAMS), "at the next check, though others were asked longer ago"


@pytest.mark.parametrize("replies", [[LEADERLESS, HEALTHY], [b"no JSON", HEALTHY], [BROKEN, HEALTHY], [HEALTHY]])
async def test_replicated_stream_is_writable_if_one_server_says_so(server, replies):
    """The server with the broken replica may answer first."""
    server.replies[STREAMS[0]] = replies
    assert {} == await asking(server, 3).find_unwritable(STREAMS[:2])


@pytest.mark.parametrize(("replies", "why"), [([LEADERLESS], "it has no leader"), ([BROKEN], "the server can't write")])
async def test_replicated_stream_is_unwritable_unless_a_server_denies_in_time(server, replies, why):
    server.replies[STREAMS[0]] = replies
    [found] = (await asking(server, 3).find_unwritable(STREAMS[:1])).values()
    assert found.why.startswith(why)


async def test_known_state_is_kept_while_no_stream_answers(server):
    """A user without the right to delete gets no answers, which is no broken stream."""
    writability = asking(server, 1)
    server.silent, server.broken = {STREAMS[0]}, {STREAMS[1]}
    assert {} == await writability.find_unwritable(STREAMS[:1])
    server.silent = set()
    before = await writability.find_unwritable(STREAMS[:2])
    server.silent = set(STREAMS[:2])
    assert before == await writability.find_unwritable(STREAMS[:2])
    assert [STREAMS[1]] == [*before]


async def test_silent_stream_among_answering_ones_is_unwritable(server):
    """Such as a stream whose only server is down."""
    writability = asking(server, 1)
    server.silent = {STREAMS[0]}
    assert {STREAMS[0]: ("no server answers for it", False)} == await writability.find_unwritable(STREAMS[:2])
    server.silent = set()
    assert {} == await writability.find_unwritable(STREAMS[:2])


async def test_unreachable_server_is_lost(server):
    server.up = False
    with pytest.raises(Lost):
        await asking(server, 1).find_unwritable(STREAMS)


async def test_refusal_counts_until_next_stored_message_or_for_30_s(server):
    now = [0.0]
    writability = asking(server, 1, lambda: now[0])
    writability.note(QUOTA)
    assert {"LANES_online_1"} == (await writability.find_unwritable(STREAMS)).keys()
    writability.note(PubAck("LANES_online_2", 5))
    assert {"LANES_online_1"} == (await writability.find_unwritable(STREAMS)).keys(), "that is another stream's message"
    writability.note(PubAck("LANES_online_1", 5))
    assert {} == await writability.find_unwritable(STREAMS)
    writability.note(QUOTA)
    now[0] = 29.9
    assert {"LANES_online_1"} == (await writability.find_unwritable(STREAMS)).keys()
    now[0] = 30.0
    assert {} == await writability.find_unwritable(STREAMS)

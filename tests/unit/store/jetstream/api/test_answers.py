"""F4: responses of JetStream's API are decoded into valid values, or refused as malformed, in one place."""

import asyncio
import copy
import json
from contextlib import suppress
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Disconnected, Lost, Refused
from evenlane.engine.errors import ConfigError
from evenlane.engine.store.jetstream import deletion, retention, stream_configs, streams
from evenlane.engine.store.jetstream.api import queue_limit
from evenlane.engine.store.jetstream.api.responses import await_call
from evenlane.engine.store.jetstream.api.server_clock import ServerClock
from evenlane.engine.store.jetstream.api.values import ConsumerInfo, MessageAnswer, StreamInfo, StreamPage
from evenlane.engine.store.jetstream.client.replies import ApiError, Reply, decode_response, read_as
from evenlane.engine.store.jetstream.export.streams import sequence_at, stream
from evenlane.engine.store.jetstream.reads import Reads
from evenlane.engine.store.jetstream.scan import Scan, sequence_of
from tests.support.store.api_samples import INFO, MADE, MESSAGE, PAGE

LANE = LaneId("lanes", 3)
ODD = (None, True, -1, 1.5, 1 << 63, 1 << 70, "", "x", "é", "2026-13-45T00:00:00Z", "\ud800", [], [None], [7], {},
       {"x": 1}, "gone")  # fmt: skip
REFUSED = (Disconnected, ApiError)


def as_of(kind, raw):
    return read_as(kind, "STREAM.INFO.S", decode_response("STREAM.INFO.S", Reply(b"", raw)))


def all_of_info(raw):
    info = as_of(StreamInfo, raw)
    assert isinstance(info.name, str)
    state = info.state
    counts = [state.first_seq, state.last_seq, state.messages, state.bytes, *(state.subjects or {}).values()]
    assert all(type(count) is int and 0 <= count < 1 << 63 for count in [*counts, info.replicas, info.total, state.at])
    expected = stream_configs.lane_config("online", LANE, "file", 3, 30.0, -1)
    with suppress(ConfigError):
        streams.check(expected, queue_limit.strip_mark(info.config))
    return info, info.leader, info.now, queue_limit.limit_of(info.config)


def all_of_consumer(raw):
    made = as_of(ConsumerInfo, raw)
    return f"$JS.API.CONSUMER.DELETE.{made.name}", made.leader, made.delivered.stream_seq + made.num_pending


READERS = {
    "stream": (INFO, all_of_info),
    "streams": (PAGE, lambda raw: [(each.name, each.state.at) for each in as_of(StreamPage, raw).streams or ()]),
    "consumer": (MADE, all_of_consumer),
    "message": (MESSAGE, lambda raw: (found := as_of(MessageAnswer, raw).message, found.at, found.hdrs, found.data)),
}


async def test_cluster_without_a_quorum_is_named():
    """The request may be sent again, once enough servers are back."""
    body = b'{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}'

    async def ask():
        return decode_response("STREAM.LIST", Reply(b"", body))

    with pytest.raises(Lost, match=r"^JetStream has no leader, as too few of its servers answer \(10008\)$"):
        await await_call(ask())


def test_unreadable_foreign_stream_hides_no_other():
    """F4: the account may have any streams; nodes still create theirs."""
    strange = {**INFO, "state": {**INFO["state"], "first_seq": (1 << 63) + 5}}
    page = as_of(StreamPage, json.dumps({**PAGE, "total": 3, "streams": [strange, INFO, 7]}).encode())
    assert (3, [INFO["config"]["name"]]) == (len(page.entries), [each.name for each in page.streams])


def changed(value):
    """Copies of `value`, each with one value in it replaced by an odd one, or removed."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        for odd in ODD:
            other = copy.copy(value)
            if odd == "gone":
                del other[key]
            else:
                other[key] = odd
            yield other
        for inner in changed(value[key]):
            other = copy.copy(value)
            other[key] = inner
            yield other


@pytest.mark.parametrize("name", READERS)
def test_single_wrong_value_is_decoded_or_refused(name):
    """Each value in turn: of another type, out of range, no time, or missing."""
    sample, read = READERS[name]
    read(json.dumps(sample).encode())
    refused = []
    for each in changed(sample):
        try:
            read(json.dumps(each).encode())
        except REFUSED as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert all("isn't from JetStream" in each for each in refused)


class Server:
    """A server that gives each request the same response."""

    def __init__(self, answer):
        self.answer = json.dumps(answer).encode()
        self.on_lost = []

    async def api(self, verb, *_, **__):
        return decode_response(verb, Reply(b"", self.answer))

    async def api_as(self, kind, verb, *_, **__):
        return read_as(kind, verb, await self.api(verb))

    async def ask_all(self, *_):
        raise Disconnected("none")

    def send(self, *_, **__):
        """Does nothing."""

    def ask(self, *_):
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(Reply(b"NATS/1.0 404 No\r\n\r\n", b""))
        return answer


async def nothing(_lanes):
    pass


def calls(server):
    """All callers of the API, with the errors that each may raise."""
    reads = Reads(server, "online", nothing)
    lost = (Lost, Refused)
    return {
        "get": (lambda: reads.get(LANE, [7]), lost),
        "log": (lambda: reads.log(LANE), lost),
        "busy": (reads.busy, lost),
        "subjects": (lambda: reads.count_by_subject(LANE, "acme", "online"), lost),
        "scan": (lambda: Scan(server, "S", "s", 1, 0, sequence_of).count(), Lost),
        "purge": (lambda: deletion.purge(server, reads, "S", 5, lambda: True), lost),
        "clock": (lambda: ServerClock().read(server, "S"), lost),
        "kept": (lambda: retention.read_retention(server, "online"), REFUSED),
        "ensure": (lambda: streams.ensure(server, []), REFUSED),
        "stream": (lambda: stream(server, "S"), REFUSED),
        "sequence": (lambda: sequence_at(server, "S", 5), REFUSED),
    }


@pytest.mark.parametrize("name", calls(SimpleNamespace()))
async def test_callers_get_expected_error_for_malformed_response(name):
    """F4: an error after which the caller retries, never a KeyError or a TypeError."""
    for answer in ({}, [], {"state": None}, {"message": []}, {"total": "x"}, {"name": "a.b", "num_pending": 1}):
        call, expected = calls(Server(answer))[name]
        with pytest.raises(expected, match="isn't from JetStream"):
            await call()

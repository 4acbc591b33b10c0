"""All functions that read bytes which others may have written: `READERS`.

Each has a strategy for its input, the function, and the errors by which it refuses an input.
"""

import asyncio
from types import SimpleNamespace

import msgspec
from starlette.requests import Request

from evenlane.engine.admin.export.messages import build_rows, dead
from evenlane.engine.admin.why import client
from evenlane.engine.base.names import LaneId, due_hour, number
from evenlane.engine.cluster import cluster_config
from evenlane.engine.control.templates.counter import CreatedTopicCounter
from evenlane.engine.control.topics import history, status
from evenlane.engine.core.export_port import Read
from evenlane.engine.core.lane.in_flight_set import list_in_flight
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.message import copies, dead_letter
from evenlane.engine.core.message.dead_letter import NotReplayable
from evenlane.engine.core.message.message import Message
from evenlane.engine.core.ports import BusyRecord, Disconnected, LogMoved, Lost, Refused, Stored
from evenlane.engine.core.queue.entry import entry_of
from evenlane.engine.core.queue.expiry import is_expired
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_head import since, waits_since
from evenlane.engine.core.records import backlog_report, meter_record, settle_record, share_messages
from evenlane.engine.core.wire import header_values, queue_subjects
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.subjects import UnroutableSubject, parse_queue
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs
from evenlane.engine.errors import ConfigError
from evenlane.engine.http.routes import params
from evenlane.engine.store.jetstream.api import responses
from evenlane.engine.store.jetstream.client.replies import ApiError, Reply, decode_response, read_as
from evenlane.engine.store.jetstream.publishing.acknowledgements import read_ack
from evenlane.engine.store.jetstream.scan import head_of
from evenlane.quota.topics.template import parse_template
from evenlane.quota.topics.topic import TopicError, decode_accepted, encode, merge, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import KeyValue
from evenlane.ring.membership import records
from evenlane.ring.membership.records import RecordError
from tests.support import hostile
from tests.support.producer_world import CLUSTER_CONFIG, accepted
from tests.support.store.api_samples import SAMPLES

LANE, LATER = LaneId("lanes", 3), LaneId("later", 3)
AT = 1_700_000_000_000_000_000
TOPIC = accepted('{"qps": 400}')
BANDS = {"high": 0, "mid": 1, "low": 2}


def lane(later=False):
    return Lane(LATER if later else LANE, 7)


def message(block):
    queue = Queue("acme", 0, "mid", 1, 3)
    return Message(entry_of(lane(), 17, AT, block, b"x"), queue, "online", "n1", 5, 0)


def all_of(message):
    """All values that a handler may read."""
    assert message.attempt >= 1
    assert message.put_ns > 0
    values = message.id, message.key, message.headers, message.put_at, message.due_at, repr(message)
    return *values, copies.retry(message, "online", AT), copies.dead_letter(message, "online", "failed", "\x00\n")


def from_dead_letters(block):
    found = dead_letter.read(Stored(5, AT, "dead.online.acme", block, b"\xff"), "online")
    found.document(body=True)
    return dead_letter.replay(found, "online", TOPIC, CLUSTER_CONFIG, AT)


def reports(block):
    page = [Read(Stored(1, AT, "lanes.online.3.acme.0.mid", block, b""), 0)]
    return [*build_rows(page, LANE, None, "online", bodies=False), *dead(page, "online", bodies=False)]


def item(raw, key="/evenlane/online/history/acme/1"):
    return KeyValue(key, raw, 1, 2, 0)


def settings_in_etcd(raw):
    async def read():
        etcd = MemoryCoordination()
        await etcd.put("/evenlane/online/settings", raw)
        return await cluster_config.agree_cluster_config(etcd, "online", {})

    return asyncio.run(read())


def counter_in_etcd(raw):
    async def read():
        etcd = MemoryCoordination()
        counter = CreatedTopicCounter(etcd, "online")
        await etcd.put(counter.key("t"), raw)
        return (await counter.read_count("t", 10)).topics

    count = asyncio.run(read())
    assert 0 <= count < 10
    return count


def received(raw):
    """The answers of `why` if a node sends this one."""

    async def ask():
        connection = SimpleNamespace(unlisten=lambda _: None, new_inbox=lambda: "_INBOX.test")
        connection.listen = lambda _, take: setattr(connection, "take", take)
        connection.send = lambda *_, **__: connection.take(b"_INBOX.x", b"", b"", raw)
        return await client.gather(connection, "online", "acme", ["n1"], 0.001)

    return asyncio.run(ask())


def api_answer(kind, raw):
    """A response of JetStream's API; tests/unit/store/jetstream/api/test_answers.py reads all kinds."""
    return read_as(kind, "STREAM.INFO.S", decode_response("STREAM.INFO.S", Reply(b"", raw)))


def posted(raw):
    """The body of a request to replay or drop dead letters."""

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    return asyncio.run(params.chosen(Request(scope, receive)))


def parameters(raw):
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": raw, "headers": [], "raw_path": raw}
    return params.limit(Request(scope))


JSON_TOPIC = (
    b'{"qps": 100, "groups": 4, "backoff": {"base": 1, "cap": 60}, "state": "active", "ordered": true,'
    b' "subscriptions": {"audit": {"qps": 20, "burst": 3}}}'
)
ACCEPTED = encode(TOPIC)
RECORDS = {
    records.NodeRecord: b'{"host":"h","pid":1,"cpu":0.5,"at":1.5,"troubles":{"etcd":"is cut off"}}',
    records.LeaderRecord: b'{"id":"n1","since":"2026"}',
    records.PlanRecord: b'{"generation":3,"partitions":[1,2]}',
    records.GenerationRecord: b'{"generation":3,"strategy":"x"}',
    records.OwnerRecord: b'{"id":"n1","epoch":7,"base":3}',
    records.EpochRecord: b'{"base":7}',
    records.DoneRecord: b'{"generation":3}',
    records.HeldRecord: b'{"id":"n1","epoch":7,"lanes":{"lanes":{"created":"x","running":[1],"failed":[[2,3]]}},'
    b'"lent":{"acme":1.5},"blocked":{"lanes":{"created":"x","sequences":[1],"seconds":30}}}',
}
SETTLED = settle_record.encode(
    settle_record.SettleRecord(1, 7, 3, "x", 20, AT, 5, pack_runs([(7, 9)], 5), False, pack_pairs([(8, 5)], 5), 3, True)
)
DEEP = b"\xdc\x00\x0d" + SETTLED[1:] + b"\x91" * 50_000
IN_FLIGHT = msgspec.msgpack.encode((1, 2, ("lanes", 3, 17), [("lanes", 3, 7, [17, 18])]))
TEMPLATES = b'{"match": "dev-*", "topic": {"qps": 10}, "limit": 5}', b'{"match": "x", "topic": {"qps": NaN}}'
ENTRY = b'{"number":1,"revision":2,"at":"2026","by":"me","via":"topics set","changes":{"qps":[1,2]}}'
ACK = b'{"stream":"LANES_online_3","seq":7,"error":{"err_code":10077,"description":"maximum messages per subject"}}'

block, document = hostile.blocks, hostile.documents
READERS = {
    "header value": (block, lambda raw: [h.value(raw, name) for name in hostile.NAMES], ()),
    "headers": (block, lambda raw: (h.decode(raw), h.decode_user(raw), h.select_carried(h.decode(raw))), ()),
    "headers that the server adds": (
        block, lambda raw: [h.read_added_number(raw, name, 0) for name in hostile.NAMES], (),
    ),
    "header refusals": (block, header_values.refusals, ()),
    "message": (block, lambda raw: all_of(message(raw)), ()),
    "stray": (block, lambda raw: copies.unroutable("a\nb", "S", 1, AT, raw, b"", "online", "why\x00"), ()),
    "expiry": (block, lambda raw: is_expired(entry_of(lane(later=True), 1, AT, raw, b""), 1, AT), ()),
    "since": (block, lambda raw: since(entry_of(lane(later=True), 1, AT, raw, b"")), ()),
    "waits since": (block, lambda raw: waits_since(Stored(1, AT, "s", raw, b"")), ()),
    "message id": (block, lambda raw: header_values.message_id("acme", "S", 1, AT, raw), ()),
    "dead letter": (block, from_dead_letters, NotReplayable),
    "messages in reports": (block, reports, ()),
    "direct get": (
        block, lambda raw: responses.has_message(Reply(raw, b"")) and responses.read_stored(Reply(raw, b"")), Lost
    ),
    "reply subject of a consumer": (
        hostile.subjects("$JS.ACK", 7), lambda raw: head_of(b"", raw.split(b"."), b""), (ValueError, IndexError)
    ),
    "acknowledgement": (
        document | hostile.spoilt(ACK), lambda raw: read_ack(b"", raw, lambda _: None),
        (Lost, LogMoved, Refused),
    ),
    "response of JetStream's API": (
        document | hostile.spoilt(b'{"error":{"code":404,"err_code":10059,"description":"x"}}'),
        lambda raw: decode_response("STREAM.INFO", Reply(b"", raw)), (ApiError, Disconnected),
    ),
    **{
        f"JetStream's {kind.__name__}": (
            document | hostile.spoilt(msgspec.json.encode(sample)), lambda raw, kind=kind: api_answer(kind, raw),
            (ApiError, Disconnected),
        )
        for kind, sample in SAMPLES.items()
    },
    "subject of a lane": (
        hostile.subjects("lanes.online.3", 3), lambda raw: parse_queue(raw, "lanes", BANDS), UnroutableSubject
    ),
    "subject of a delay stream": (
        hostile.subjects("later.online.3", 4), lambda raw: parse_queue(raw, "later", BANDS), UnroutableSubject
    ),
    "subjects of a backlog": (
        hostile.subjects("later.online.3", 4),
        lambda raw: [*queue_subjects.parse(LATER, {raw.decode("utf-8", "replace"): 1}, 1, ("mid",))], (),
    ),
    "number": (hostile.words, lambda raw: number(raw.decode("utf-8", "replace")), ()),
    "due hour": (hostile.words, lambda raw: due_hour(raw.decode("utf-8", "replace")), ()),
    "settle log": (
        document | hostile.spoilt(SETTLED, DEEP), lambda raw: fold([SETTLED, raw]), ConfigError
    ),
    "in-flight record": (
        document | hostile.spoilt(IN_FLIGHT),
        lambda raw: list_in_flight([BusyRecord(AT, raw)], LANE, 7), (),
    ),
    "meter record": (document | document.map(lambda raw: b"\x01z" + raw), meter_record.decode, meter_record.Unreadable),
    "quota share reports": (document, share_messages.decode_for_leader, ()),
    "quota share requests": (document, share_messages.decode_request, ()),
    "backlog report": (document, backlog_report.decode_report, ()),
    "answer of why": (document, received, ()),
    "body of a request": (document | hostile.spoilt(b'{"seq": 7, "all": false}'), posted, ConfigError),
    "parameters of a request": (document.map(lambda raw: b"limit=" + raw) | document, parameters, ConfigError),
    "settings": (
        document | hostile.spoilt(b'{"partitions":8,"priorities":["a","b"],"group_qps":50,"version":1}'),
        settings_in_etcd, ConfigError,
    ),
    "spec": (document | hostile.spoilt(JSON_TOPIC), parse_spec, TopicError),
    "merged spec": (document | hostile.spoilt(JSON_TOPIC), lambda raw: merge(raw, {"qps": 5}), TopicError),
    "shown spec": (document | hostile.spoilt(JSON_TOPIC), status.describe_spec, ()),
    "accepted topic": (document | hostile.spoilt(ACCEPTED), decode_accepted, TopicError),
    "template": (
        document | hostile.spoilt(*TEMPLATES),
        lambda raw: parse_template("t", raw), TopicError,
    ),
    "counter of a template": (document | hostile.spoilt(b'{"made": 3}', b'{"made": -3}'), counter_in_etcd, ()),
    "author": (document | hostile.spoilt(b'{"by":"me","via":"x","replaced":3}'),
               lambda raw: history.author_of(item(raw), 2), ()),
    "history": (document | hostile.spoilt(ENTRY), lambda raw: (history.read_history("online", "acme", [item(raw)]),
                                                               history.next_number("online", "acme", [item(raw)])), ()),
    **{
        kind.__name__: (
            document | hostile.spoilt(sample), lambda raw, kind=kind: records.decode(kind, "k", raw), RecordError
        )
        for kind, sample in RECORDS.items()
    },
}  # fmt: skip
HEADER_READERS = {name for name, (strategy, *_) in READERS.items() if strategy is block}

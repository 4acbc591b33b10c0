"""Responses of JetStream's API, as nats-server sends them."""

from evenlane.engine.store.jetstream.api.values import ConsumerInfo, MessageAnswer, StreamInfo, StreamPage

CONFIG = {
    "name": "LANES_online_3", "subjects": ["lanes.online.3.*.*.*"], "retention": "limits", "max_consumers": -1,
    "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1, "discard": "new", "storage": "file",
    "num_replicas": 3, "duplicate_window": 30_000_000_000, "allow_direct": True, "metadata": {"_nats.ver": "2.12.0"},
}  # fmt: skip
INFO = {
    "type": "io.nats.jetstream.api.v1.stream_info_response", "total": 1, "offset": 0, "limit": 100_000,
    "config": CONFIG, "created": "2026-11-25T00:00:00.5Z", "ts": "2026-11-25T07:00:00.123456789Z",
    "state": {
        "messages": 2, "bytes": 99, "first_seq": 3, "last_seq": 7, "last_ts": "2026-11-25T06:59:59Z",
        "first_ts": "2026-11-25T00:00:00Z", "consumer_count": 0, "subjects": {"lanes.online.3.acme.0.mid": 2},
    },
    "cluster": {"name": "c", "leader": "s1", "replicas": [{"name": "s2", "current": True}]},
}  # fmt: skip
PAGE = {"total": 1, "offset": 0, "limit": 256, "streams": [INFO]}
MADE = {
    "stream_name": "LANES_online_3", "name": "x7", "num_pending": 4, "cluster": {"leader": "s1"},
    "delivered": {"consumer_seq": 0, "stream_seq": 2},
}  # fmt: skip
MESSAGE = {
    "message": {
        "subject": "lanes.online.3.acme.0.mid", "seq": 7, "time": "2026-11-25T06:59:59.5Z",
        "hdrs": "TkFUUy8xLjANCkE6IDENCg0K", "data": "aGk=",
    }
}  # fmt: skip
SAMPLES = {StreamInfo: INFO, StreamPage: PAGE, ConsumerInfo: MADE, MessageAnswer: MESSAGE}

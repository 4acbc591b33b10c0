"""Acknowledgements of published messages, and what their errors mean for a put (L)."""

import msgspec
import pytest

from evenlane.engine.core.ports import Full, LogMoved, Lost, QueueFull, Refused, TooLarge
from evenlane.engine.store.jetstream.publishing.acknowledgements import read_ack


def error(code, err_code, text):
    return msgspec.json.encode({"error": {"code": code, "err_code": err_code, "description": text}, "stream": "A"})


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (error(400, 10077, "maximum messages per subject exceeded"), QueueFull),
        (error(400, 10077, "maximum messages exceeded"), Lost),
        (error(400, 10077, "maximum bytes exceeded"), Full),
        (error(400, 10071, "wrong last sequence: 5"), LogMoved),
        (error(400, 10054, "message size exceeds maximum allowed"), TooLarge),
        (error(503, 10008, "JetStream system temporarily unavailable"), Lost),
        # its first copy isn't stored yet: this is no answer to whether it will be
        (error(409, 10158, "duplicate message id is in process"), Lost),
        # by a leader that was voted out, while another one may store the message
        (error(503, 0, "raft: not leader"), Lost),
        (error(400, 10060, "expected stream does not match"), Refused),
    ],
)
def test_error_is_translated(body, kind):
    with pytest.raises(kind) as raised:
        read_ack(b"", body, lambda _: None)
    assert kind is type(raised.value)


@pytest.mark.parametrize("body", [b"{}", b'{"stream":"A"}', b'{"seq":7}', b'{"stream":"A","seq":0,"duplicate":true}'])
def test_answer_without_stream_or_sequence_acknowledges_nothing(body):
    """F4: the message may be stored, or not."""
    with pytest.raises(Lost, match="isn't from JetStream"):
        read_ack(b"", body, lambda _: None)

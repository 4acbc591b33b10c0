"""The lean parser yields the same messages however the bytes are split, and nothing worse than ProtocolError."""

import asyncio
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import ProtocolError

from evenlane.engine.store.jetstream.delivery.protocol_parser import LeanParser

RAW, OWN = 7, 8  # subscriptions: one of the engine's, one of nats-py's


class Client:
    """The part of nats-py's client that the parser calls."""

    def __init__(self) -> None:
        self.events: list[tuple] = []

    async def _process_msg(self, sid, subject, reply, data, headers) -> None:
        self.events.append(("own", sid, subject, reply, headers or b"", data))

    async def _process_ping(self) -> None:
        self.events.append(("ping",))

    async def _process_pong(self) -> None:
        self.events.append(("pong",))

    async def _process_info(self, info) -> None:
        self.events.append(("info", info))

    async def _process_err(self, text) -> None:
        self.events.append(("closed", text))

    async def _process_op_err(self, error) -> None:
        self.events.append(("reconnect", str(error)))


def parsing() -> tuple[LeanParser, Client]:
    client = Client()
    parser = LeanParser(client)
    parser.raw[b"%d" % RAW] = lambda *message: client.events.append(("raw", RAW, *message))
    return parser, client


def parse(*chunks: bytes) -> list[tuple]:
    parser, client = parsing()

    async def run() -> None:
        for chunk in chunks:
            await parser.parse(chunk)

    asyncio.run(run())
    return client.events


words = st.text("abcXYZ$.>*_-0123456789", min_size=1, max_size=20).map(str.encode)
bodies = st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"MSG a 7 3\r\nabc\r\n", b"x" * 5_000]))
blocks = st.binary(max_size=30).map(lambda rest: b"NATS/1.0\r\n" + rest + b"\r\n\r\n")


@st.composite
def messages(draw) -> tuple[bytes, tuple]:
    sid = draw(st.sampled_from([RAW, OWN]))
    subject, reply, body = draw(words), draw(st.one_of(st.just(b""), words)), draw(bodies)
    headers = draw(st.one_of(st.just(b""), blocks))
    line = b" ".join([b"HMSG" if headers else b"MSG", subject, b"%d" % sid, *([reply] if reply else [])])
    size = b" %d %d" % (len(headers), len(headers + body)) if headers else b" %d" % len(body)
    event = ("raw" if sid == RAW else "own", sid, subject, reply, headers, body)
    if sid == RAW:
        event = ("raw", RAW, subject, reply, headers, body)
    return line + size + b"\r\n" + headers + body + b"\r\n", event


info = {"server_name": "n", "max_payload": 1 << 20, "connect_urls": ["a", "b"]}
control = st.sampled_from(
    [
        (b"PING\r\n", ("ping",)),
        (b"PONG\r\n", ("pong",)),
        (b"INFO " + json.dumps(info).encode() + b" \r\n", ("info", info)),
        (b"-ERR 'Stale Connection'\r\n", ("reconnect", "nats: 'stale connection'")),
    ]
)
ok = st.just((b"+OK\r\n", None))


@st.composite
def streams(draw) -> tuple[list[bytes], list[tuple]]:
    parts = draw(st.lists(st.one_of(messages(), control, ok), max_size=12))
    data = b"".join(part for part, _ in parts)
    byte_by_byte = st.just(range(1, len(data))) if len(data) < 2_000 else st.nothing()
    cuts = sorted(draw(st.one_of(st.lists(st.integers(0, len(data)), max_size=12), byte_by_byte)))
    chunks = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return chunks, [event for _, event in parts if event]


@given(streams())
def test_messages_do_not_depend_on_chunks(stream):
    chunks, expected = stream
    assert expected == parse(*chunks)


@pytest.mark.parametrize(
    "line",
    [
        b"MSG\r\n", b"MSG a\r\n", b"MSG a x 3\r\nabc\r\n", b"MSG a 7 x\r\n", b"MSG a 7 -1\r\n",
        b"MSG a 7 -15\r\n", b"HMSG a 7 3\r\n", b"HMSG a 7 5 3\r\nabc\r\n", b"HMSG a 7 -2 3\r\nabc\r\n",
        b"HMSG a 7 x 3\r\nabc\r\n", b"INFO {\r\n", b"INFO\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"\x00\r\n",
        b"garbage\r\n", b"\r\n", b"+" + b"x" * (1 << 20) + b"y",
    ],
)  # fmt: skip
def test_malformed_line_is_protocol_error(line):
    with pytest.raises(ProtocolError):
        parse(line)


@given(st.binary(max_size=200))
def test_random_bytes_are_protocol_error_or_unfinished_line(data):
    """Never another exception, which would end nats-py's reading loop, and never an endless loop."""
    with contextlib.suppress(ProtocolError):
        parse(data)


def test_reset_drops_unfinished_input():
    parser, client = parsing()

    async def run() -> None:
        for half in (b"MSG a 7 100\r\nabc", b"PIN"):
            await parser.parse(half)
            parser.reset()
            await parser.parse(b"PING\r\n")

    asyncio.run(run())
    assert [("ping",), ("ping",)] == client.events


def test_raising_callback_loses_only_its_message():
    parser, client = parsing()
    good = parser.raw[b"%d" % RAW]

    def callback(*message) -> None:
        if message[3] == b"bad":
            raise ValueError(message)
        good(*message)

    parser.raw[b"%d" % RAW] = callback
    asyncio.run(parser.parse(b"MSG a 7 3\r\nbad\r\nMSG a 7 4\r\ngood\r\nPING\r\n"))
    assert [("raw", RAW, b"a", b"", b"", b"good"), ("ping",)] == client.events


def test_callback_may_end_its_own_subscription():
    parser, client = parsing()
    parser.raw[b"%d" % RAW] = lambda *_: parser.raw.clear()
    asyncio.run(parser.parse(b"MSG a 7 1\r\n1\r\nMSG a 7 1\r\n2\r\n"))
    assert [("own", RAW, b"a", b"", b"", b"2")] == client.events


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization Violation", "reconnect"),
        ("Permissions Violation for Publish to x", "closed"),
        ("Maximum Control Line Exceeded", "reconnect"),
        ("Unknown Protocol Operation", "reconnect"),
        ("Maximum Payload Violation", "reconnect"),
        ("Something new", "reconnect"),
    ],
)
def test_only_permanent_errors_close_connection(text, expected):
    assert [expected] == [event[0] for event in parse(f"-ERR '{text}'\r\n".encode())]


@pytest.mark.parametrize("what", ["Publish", "Subscription"])
async def test_denied_subject_is_reported_as_the_server_writes_it(what):
    """S1: a permission that is missing closes nothing, and subjects keep their capitals."""
    parser, client = parsing()
    seen = []
    parser.on_denied = lambda *denied: seen.append(denied)
    await parser.parse(f"-ERR 'Permissions Violation for {what} to \"lanes.online.5.Acme.0.mid\"'\r\nPING\r\n".encode())
    assert ([(what.lower(), "lanes.online.5.Acme.0.mid")], [("ping",)]) == (seen, client.events)


@pytest.mark.parametrize(("size", "expected"), [(32 << 10, ["in between"]), (1 << 10, [])])
async def test_event_loop_runs_after_full_chunk(size, expected):
    """Z6: more data is ready, and reading it at once would delay all other work."""
    parser, _ = parsing()
    seen = []
    asyncio.get_running_loop().call_soon(seen.append, "in between")
    await parser.parse((b"PING\r\n" * size)[:size])
    assert expected == seen

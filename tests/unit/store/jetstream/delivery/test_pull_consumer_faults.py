"""Successive consumers of a stream with gaps, over a connection that loses, repeats and ends: each message is delivered
once and in order, and finally all are (E12). The server of this test does with a pull what nats-server does.
"""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.delivery.pull_consumer import (
    CaughtUp,
    Ended,
    EndReason,
    Pull,
    PullConsumer,
    PullStage,
)

SUBJECT = b"lanes.online.0.acme.0.mid"
LARGEST = 4_096
_SIZES = st.one_of(st.integers(100, 300), st.integers(100, LARGEST))
_FATES = st.sampled_from(["comes", "comes", "comes", "comes", "is lost", "comes twice", "is garbled", "disturbed"])


class Server:
    """A stream (sequence -> bytes of the message, as the server counts them) and one consumer."""

    def __init__(self, stream, start):
        self.ahead = deque((sequence, size) for sequence, size in sorted(stream.items()) if sequence >= start)
        self.number = 0
        self.pulls = deque()

    def pull(self, pull):
        self.pulls.append([pull.stage.value, pull.max_bytes])

    def answer(self, headless):
        """The next message or status, as (subject, reply, headers, body); None if there is none."""
        while self.pulls:
            kind, room = self.pulls[0]
            inbox = b"_INBOX.feed.S.c." + kind.encode()
            if not self.ahead:
                if kind == "small":
                    return None
                self.pulls.popleft()
                return inbox, b"", b"NATS/1.0 404 No Messages\r\n\r\n", b""
            sequence, size = self.ahead[0]
            reply = b"$JS.ACK.S.c.1.%d.%d.7.%d" % (sequence, self.number + 1, len(self.ahead) - 1)
            headers = b"NATS/1.0\r\nNats-Msg-Size: %d\r\n\r\n" % size if headless else b""
            body = b"" if headless else b"x" * (size - len(SUBJECT) - len(reply))
            whole = len(SUBJECT) + len(reply) + len(headers) + len(body)
            if whole > room:
                self.pulls.popleft()
                return inbox, b"", b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n", b""
            self.ahead.popleft()
            self.number += 1
            self.pulls[0][1] -= whole
            if whole == room:
                self.pulls.popleft()
            return SUBJECT, reply, headers, body
        return None

    def heartbeat(self):
        if any(kind == "small" for kind, _ in self.pulls):
            return b"", b"", b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\n\r\n" % self.number, b""
        return None


class Feed:
    """The feed without its I/O. `fates` apply to what the server sends, one each, while there are some."""

    def __init__(self, stream, until, fates, heads):
        self.stream, self.until, self.fates = stream, until, deque(fates)
        self.heads = heads  # whether heads are taken, by sequence modulo 3
        self.budget, self.lag, self.now = FeedBudget(8 * LARGEST, LARGEST), ByteLag(), 0.0
        self.delivered, self.caught_up, self.last = [], 0, 0

    def perform(self, action):
        assert not isinstance(self.last_action, Ended), "an action after the end"
        self.last_action = action
        if isinstance(action, Pull):
            self.server.pull(action)
        elif isinstance(action, CaughtUp):
            self.caught_up += 1

    def run(self):
        """Run consumers until all is delivered; returns the reasons of their ends."""
        reasons = []
        while not reasons or reasons[-1] not in {EndReason.COMPLETE, "idle"}:
            assert len(reasons) < 500, "it never ends"
            reasons.append(self.live())
        return reasons

    def live(self):
        self.last_action, self.server = None, Server(self.stream, self.last + 1)
        self.consumer = PullConsumer(
            sink=lambda _subject, sequence, *_: self.delivered.append(sequence),
            perform=self.perform,
            budget=self.budget,
            lag=self.lag,
            last=self.last,
            until=self.until,
            on_head=self.take_head if self.heads else None,
            awaits_end=not self.caught_up,
        )
        self.consumer.on_created(len(self.server.ahead), self.now)
        is_idle = False
        while self.consumer.stage is not PullStage.ENDED and not is_idle:
            is_idle = self.step()
        self.consumer.end(EndReason.CLOSED)
        self.last = self.consumer.last
        return "idle" if is_idle else self.last_action.reason

    def take_head(self, _subject, sequence, _at, _headers, size):
        assert self.stream[sequence] == size
        if sequence % 3 not in self.heads:
            return False
        self.delivered.append(sequence)
        return True

    def step(self):
        """Whether both sides agree that nothing is left to send."""
        came = self.server.answer(self.consumer.headless)
        if came is not None:
            self.receive(came, self.fates.popleft() if self.fates else "comes")
            return False
        heartbeat = self.server.heartbeat()
        if heartbeat is not None:
            self.consumer.on_message(*heartbeat)
            return self.consumer.stage is not PullStage.ENDED
        for _ in range(14):
            self.now += 1
            self.consumer.on_second(self.now)
        assert self.consumer.stage is PullStage.ENDED, "it waits for a message that never comes"
        return False

    def receive(self, came, fate):
        receive = self.consumer.on_message
        if fate == "disturbed":
            self.consumer.end(EndReason.DISTURBED)
        elif fate == "is garbled":
            receive(SUBJECT, b"$JS.ACK.S.c.1.x", b"", b"")
        elif fate != "is lost":
            receive(*came)
            if fate == "comes twice" and came[1]:
                receive(*came)


@given(
    stream=st.dictionaries(st.integers(1, 60), _SIZES, max_size=40),
    fates=st.lists(_FATES, max_size=60),
    heads=st.sampled_from([(), (0, 1, 2), (1, 2)]),
    flood=st.booleans(),
)
def test_each_message_is_delivered_once_in_order_despite_faults(stream, fates, heads, flood):
    feed = Feed(stream, None, fates, heads)
    if flood and heads:
        for _ in range(4):
            feed.lag.note_pull(1, 1 << 20, 100)
    feed.run()
    assert sorted(stream) == feed.delivered
    assert 1 == feed.caught_up


@given(
    stream=st.dictionaries(st.integers(1, 60), _SIZES, max_size=40),
    until=st.integers(1, 70),
    fates=st.lists(_FATES, max_size=60),
)
def test_feed_with_end_delivers_exactly_up_to_it(stream, until, fates):
    feed = Feed(stream, until, fates, ())
    assert EndReason.COMPLETE is feed.run()[-1]
    assert sorted(sequence for sequence in stream if sequence <= until) == feed.delivered


@given(stream=st.dictionaries(st.integers(1, 60), _SIZES, max_size=40))
def test_one_consumer_suffices_without_faults(stream):
    feed = Feed(stream, None, [], ())
    assert ["idle"] == feed.run()

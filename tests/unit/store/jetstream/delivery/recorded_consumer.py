"""A pull consumer that records its actions, for tables of events."""

from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.delivery.pull_consumer import PullConsumer, PullStage

TOTAL, LARGEST = 32 << 20, 1 << 20
SUBJECT = b"lanes.online.0.acme.0.mid"
SMALL, TURN = b"_INBOX.feed.S.c.small", b"_INBOX.feed.S.c.turn"
NO_MORE = b"NATS/1.0 404 No Messages\r\n\r\n"
EXPIRED = b"NATS/1.0 408 Request Timeout\r\n\r\n"
USED_UP = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n"
BATCH = b"NATS/1.0 409 Batch Completed\r\n\r\n"


def heartbeat(last):
    return b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: 9\r\n\r\n" % last


class Consumer:
    """Records a real consumer's `actions` since the last look, and the sequences `taken`; delegates everything else."""

    def __init__(self, last=0, budget=None, lag=None, **options):
        self.actions, self.taken = [], []
        self._consumer = PullConsumer(
            sink=lambda _subject, sequence, *_: self.taken.append(sequence),
            perform=self.actions.append,
            budget=budget or FeedBudget(TOTAL, LARGEST),
            lag=lag or ByteLag(),
            last=last,
            **options,
        )

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def replace(self, *, sink=None, perform=None):
        """Replace a callback. Its further calls aren't recorded."""
        if sink is not None:
            self._consumer.sink = sink
        if perform is not None:
            self._consumer.perform = perform

    def look(self):
        actions = self.actions.copy()
        self.actions.clear()
        return actions

    def reason(self):
        """The reason of its end, which is its last action."""
        assert PullStage.ENDED is self.stage
        return self.look()[-1].reason

    def message(self, number, sequence=None, pending=9, size=100, headers=b""):
        """Deliver message `number` of the consumer, of `size` bytes as the server counts."""
        reply = b"$JS.ACK.S.c.1.%d.%d.7.%d" % (sequence or number, number, pending)
        self.on_message(SUBJECT, reply, headers, b"x" * (size - len(SUBJECT) - len(reply) - len(headers)))

    def status(self, headers, subject=SMALL):
        self.on_message(subject, b"", headers, b"")

    def seconds(self, count, begin=0.0):
        for second in range(1, count + 1):
            self.on_second(begin + second)


def running(**options):
    """A consumer whose first pull is open, with 9 pending messages."""
    consumer = Consumer(**options)
    consumer.on_created(9, 0.0)
    consumer.look()
    return consumer


def flooded():
    """A lag at which a feed leaves bodies in the stream."""
    lag = ByteLag()
    for _ in range(4):
        lag.note_pull(1, 1 << 20, 100)
    assert lag.leaves_bodies
    return lag


def busy():
    """A budget without room for a turn; `return_turn` makes room for one."""
    budget = FeedBudget(2, 1)
    budget.ask(lambda: True)
    return budget

"""The keys of an ordered queue: one message per key is out at a time, and each key keeps its order (K6)."""

from collections import deque

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.queue.entry import MemoryBudget, MessageRef, entry_of
from evenlane.engine.core.queue.key_order import KeyOrder

MAIN, LATER = Lane(LaneId("lanes", 1), 1), Lane(LaneId("later", 1), 1)
MOST = 6
keys = st.sampled_from("abcd")
bodies = st.sampled_from([b"x", b"x" * 10, b"x" * 500])  # none is empty: `used_bytes` then shows which ones are kept


def place(each):
    return MessageRef(*each[:2])


class Keys(RuleBasedStateMachine):
    """Against lists: `model` has the messages of each key. The first is out or next, the others wait behind it."""

    @initialize(payload_bytes=st.sampled_from([0, 1_000, 1 << 20]))
    def begin(self, payload_bytes):
        self.limits = MemoryBudget(payload_bytes=payload_bytes, index=MOST)
        self.order, self.sequence = KeyOrder(), 0
        self.model: dict[str, deque[MessageRef]] = {}
        self.kept: set[MessageRef] = set()  # messages whose payload was kept, as far as they still wait

    @rule(key=keys, lane=st.sampled_from([MAIN, MAIN, LATER]), body=bodies)
    def message_arrives(self, key, lane, body):
        self.sequence, held = self.sequence + 1, self.limits.used_bytes
        entry = entry_of(lane, self.sequence, self.sequence, b"", body)
        known = self.model.setdefault(key, deque())
        assert self.order.admit(key, place(entry)) == (not known)
        if known and not self.order.wait(key, entry, self.limits):
            assert self.order.waiting == MOST
            assert self.order.full
        else:
            known.append(place(entry))
            if self.limits.used_bytes > held:
                self.kept.add(place(entry))

    @rule(key=keys)
    def message_is_admitted_again(self, key):
        """A retry, or a message whose turn it is: its own key doesn't hold it back."""
        if known := self.model.get(key):
            assert self.order.admit(key, known[0])

    @rule(key=keys)
    def message_ends(self, key):
        if known := self.model.pop(key, None):
            following = self.order.free_key(known.popleft(), self.limits)
            assert (known[0] if known else None) == (following and place(following))
            if known:
                assert not self.order.full
                self.model[key] = known

    @rule(sequence=st.integers(10_000, 10_010))
    def unknown_message_ends(self, sequence):
        assert self.order.free_key(MessageRef(MAIN, sequence), self.limits) is None

    @rule()
    def drop_payloads(self):
        self.order.drop_payloads(self.limits)
        self.kept.clear()
        assert self.limits.used_bytes == 0

    @rule(lane=st.sampled_from([MAIN, LATER]))
    def discard(self, lane):
        out = {known[0] for known in self.model.values()}
        following = {place(each) for each in self.order.discard(lane, self.limits)}
        self.model = {
            key: left
            for key, known in self.model.items()
            if (left := deque(each for each in known if each.lane is not lane))
        }
        assert {known[0] for known in self.model.values()} - out == following

    @precondition(lambda self: self.model)
    @rule()
    def drain(self):
        """The topic is no longer ordered: waiting messages return by sequence."""
        behind = [each for known in self.model.values() for each in list(known)[1:]]
        assert sorted(each.sequence for each in behind) == [each.sequence for each in self.order.drain(self.limits)]
        self.model = {key: deque([known[0]]) for key, known in self.model.items()}
        assert self.limits.used_bytes == 0

    @invariant()
    def counts(self):
        if hasattr(self, "order"):
            assert self.order.waiting == sum(len(known) - 1 for known in self.model.values())
            assert self.limits.used_bytes <= self.limits.payload_bytes
            assert all(self.order.is_out(known[0]) for known in self.model.values())
            assert not any(self.order.is_out(each) for known in self.model.values() for each in list(known)[1:])

    @invariant()
    def oldest(self):
        """The oldest is the first message behind some key, and the oldest of these if all payloads are kept."""
        if hasattr(self, "order"):
            firsts = [known[1] for known in self.model.values() if len(known) > 1]
            found = self.order.oldest()
            assert (found is None) == (not firsts)
            assert found is None or place(found) in firsts
            if found is not None and all(
                each in self.kept for known in self.model.values() for each in list(known)[1:]
            ):
                assert found[1] == min(each.sequence for each in firsts)

    def teardown(self):
        """In the end all messages leave in their order, and none stays behind."""
        if hasattr(self, "order"):
            for key in list(self.model):
                while key in self.model:
                    self.message_ends(key)
            assert self.order.waiting == self.limits.used_bytes == 0


TestKeys = Keys.TestCase


def test_number_of_waiting_messages_is_bounded():
    """M: further messages are turned away until a message ends."""
    limits, order = MemoryBudget(index=2), KeyOrder()
    entries = [entry_of(MAIN, sequence, 0, b"", b"x") for sequence in range(1, 5)]
    assert order.admit("a", place(entries[0]))
    assert [True, True, False] == [order.wait("a", entry, limits) for entry in entries[1:]]
    assert order.full
    assert entries[1] == order.free_key(place(entries[0]), limits)
    assert not order.full
    assert order.wait("a", entries[3], limits)

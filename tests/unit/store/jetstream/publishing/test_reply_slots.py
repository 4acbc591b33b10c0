"""Reply subjects that are used again: an acknowledgement reaches the put of its message, or none (L)."""

import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.core.ports import Lost, Receipt, Refused
from evenlane.engine.store.jetstream.publishing.reply_slots import ReplySlots

A, B = "lanes.e.0.acme.0.mid", "lanes.e.1.acme.1.mid"


def receipt(sequence, *, duplicate=False):
    return Receipt("LANES_e_0", sequence, duplicate)


class Caller:
    def complete(self, outcome):
        self.outcome = outcome


class World:
    def __init__(self):
        self.slots = ReplySlots("_INBOX.x")
        self.outcomes = []

    def put(self, subject=A):
        return self.slots.take(self.slots.target(subject), self.outcomes.append)


class TestReuse:
    def test_puts_to_one_stream_share_subject(self):
        world, replies = World(), set()
        for sequence in range(1, 4):
            replies.add(reply := world.put())
            world.slots.settle(reply, receipt(sequence))
        assert ({b"_INBOX.x.1"}, [1, 2, 3]) == (replies, [each.sequence for each in world.outcomes])

    def test_unanswered_put_and_other_stream_have_their_own(self):
        world = World()
        first = world.put()
        world.slots.settle(world.put(B), receipt(1))
        assert 4 == len({first, world.put(), world.put(B), world.put(B)})

    def test_lane_and_delay_stream_of_partition_share_none(self):
        world = World()
        world.slots.settle(first := world.put(A), receipt(5))
        assert first != world.put("later.e.0.acme.0.mid.474000")

    def test_no_subject_is_used_again_after_any_other_answer(self):
        world, replies = World(), []
        for answer in (receipt(7, duplicate=True), Refused("no"), Lost("gone")):
            replies.append(world.put())
            world.slots.settle(replies[-1], answer)
        assert 4 == len({*replies, world.put()})

    def test_subjects_beyond_what_server_remembers_are_not_kept(self):
        """M: the most unanswered puts that a stream ever had don't occupy memory for good."""
        world = World()
        replies = [world.put() for _ in range(600)]
        for sequence, reply in enumerate(replies, 1):
            world.slots.settle(reply, receipt(sequence))
        assert 512 == len({world.put() for _ in range(600)} & set(replies))

    def test_free_subject_keeps_no_put_alive(self):
        """M: a put holds its body."""
        world, caller = World(), Caller()
        world.slots.settle(world.slots.take(world.slots.target(A), caller.complete), receipt(1))
        gone = weakref.ref(caller)
        del caller
        assert gone() is None

    def test_put_that_was_not_sent_gets_no_outcome(self):
        world = World()
        world.slots.forget(reply := world.put())
        world.slots.settle(reply, receipt(1))
        assert [] == world.outcomes
        assert reply != world.put()

    def test_many_subjects_are_forgotten_at_times_but_answered(self):
        world = World()
        replies = [world.put(f"lanes.e.0.acme.{group}.mid") for group in range(40_000)]
        for sequence, reply in enumerate(replies, 1):
            world.slots.settle(reply, receipt(sequence))
        assert list(range(1, 40_001)) == [each.sequence for each in world.outcomes]


class TestLateAnswers:
    def test_copy_of_last_acknowledgement_acknowledges_nothing(self):
        """A new leader of a stream may acknowledge again what the old one had acknowledged."""
        world = World()
        world.slots.settle(reply := world.put(), receipt(8))
        assert reply == world.put()
        world.slots.settle(reply, receipt(8))
        assert [receipt(8)] == world.outcomes
        world.slots.settle(reply, receipt(9))
        assert [receipt(8), receipt(9)] == world.outcomes

    def test_copy_of_earlier_acknowledgement_ends_try(self):
        """The put is tried again, on another subject."""
        world = World()
        for sequence in (8, 9):
            world.slots.settle(reply := world.put(), receipt(sequence))
        assert reply == world.put()
        world.slots.settle(reply, receipt(8))
        world.slots.settle(reply, receipt(10))
        assert [receipt(8), receipt(9)] == world.outcomes[:2]
        assert [Lost] == [type(each) for each in world.outcomes[2:]]
        assert reply != world.put()

    def test_stream_that_was_created_anew_costs_one_try(self):
        """Its sequences begin at 1: none of the subjects used before may refuse them one by one."""
        world = World()
        replies = [world.put() for _ in range(9)]
        for sequence, reply in enumerate(replies, 100):
            world.slots.settle(reply, receipt(sequence))
        on_its_way = world.put()
        world.slots.settle(world.put(), receipt(1))
        world.slots.settle(world.put(), receipt(2))
        assert isinstance(world.outcomes[9], Lost)
        assert receipt(2) == world.outcomes[10]
        world.slots.settle(on_its_way, receipt(300))  # a late acknowledgement by the old stream
        assert on_its_way not in {world.put(), world.put()}, "its sequence doesn't hold in the new stream"

    def test_lost_connection_fails_all_puts_and_ends_all_subjects(self):
        world = World()
        used, *waiting = world.put(), world.put(), world.put(B)
        world.slots.settle(used, receipt(1))
        world.slots.fail(Lost("NATS went away"))
        for reply in (used, *waiting):
            world.slots.settle(reply, receipt(50))
        assert ["NATS went away"] * 2 == [str(each) for each in world.outcomes[1:]]
        assert {used, *waiting}.isdisjoint({world.put(), world.put(B)})

    def test_puts_without_answer_fail_up_to_mark(self):
        world = World()
        old = world.put()
        mark = world.slots.puts
        new = world.put()
        world.slots.give_up(mark, Lost("no answer"))
        assert ["no answer"] == [str(each) for each in world.outcomes]
        world.slots.settle(old, receipt(1))
        world.slots.settle(new, receipt(2))
        assert [receipt(2)] == world.outcomes[1:]

    def test_outcome_may_lead_to_next_put(self):
        """A producer's window lets the next put go while an outcome is reported."""
        world = World()
        again = []
        for _ in range(2):
            world.slots.take(world.slots.target(A), lambda _: again.append(world.put()))
        world.slots.fail(Lost("NATS went away"))
        assert 2 == len(set(again))
        for sequence, reply in enumerate(again, 1):
            world.slots.settle(reply, receipt(sequence))
        assert [receipt(1), receipt(2)] == world.outcomes

    def test_failing_caller_leaves_others_their_outcome(self):
        """The next call fails them."""
        world = World()
        world.slots.take(world.slots.target(A), {}.__getitem__)
        world.put()
        with pytest.raises(KeyError):
            world.slots.fail(Lost("NATS went away"))
        world.slots.fail(Lost("NATS went away"))
        assert [Lost] == [type(each) for each in world.outcomes]


_EVENTS = st.sampled_from([*["put"] * 3, *["acknowledge", "again"] * 2, "refuse", "lose", "mark"])


@settings(max_examples=400)
@given(events=st.lists(st.tuples(_EVENTS, st.integers(0, 1_000), st.sampled_from([A, B])), min_size=20, max_size=80))
def test_receipt_is_that_of_the_puts_own_message(events):
    """L: a server that answers late, twice, or in any order never acknowledges a put with another message's receipt,
    and each put has one outcome at most.
    """
    slots = ReplySlots("_INBOX.x")
    outcomes, sent, answered = {}, [], []

    def put(subject):
        number = len(outcomes)
        outcomes[number] = []
        sent.append((number, slots.take(slots.target(subject), outcomes[number].append)))

    for event, which, subject in events:
        if event == "put":
            put(subject)
        elif event == "lose":
            slots.fail(Lost("gone"))
        elif event == "mark":
            slots.give_up(which, Lost("silent"))
        elif event == "again" and answered:
            number, reply, copy = answered[which % len(answered)]
            slots.settle(reply, copy)
        elif event in {"acknowledge", "refuse"} and sent:
            number, reply = sent.pop(which % len(sent))
            answer = receipt(number + 1) if event == "acknowledge" else Refused("no")
            if event == "acknowledge":
                answered.append((number, reply, answer))
            slots.settle(reply, answer)
        assert all(len(each) <= 1 for each in outcomes.values())
        acknowledged = {number: each[0] for number, each in outcomes.items() if each and isinstance(each[0], Receipt)}
        assert all(number + 1 == outcome.sequence for number, outcome in acknowledged.items())

"""Which groups may go, and when they are asked about, on a clock that is a number (E3: lowering drains first)."""

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.gc_candidates import EmptyGroup, GroupCandidates
from evenlane.engine.core.wire.group_gc_messages import GroupQuestion
from evenlane.quota.topics.topic import accept, complete, delete, parse_spec

SECOND = 1_000_000_000
KNOWN, EVERY, LONGEST = 30 * SECOND, 2 * SECOND, 60 * SECOND


def topic(groups: int):
    return complete(parse_spec(b'{"qps": 100, "groups": %d}' % groups), ClusterConfig())


def lowered(before: int, after: int):
    return accept(topic(after), 2, accept(topic(before), 1, None))


@pytest.fixture
def candidates():
    return GroupCandidates(KNOWN, EVERY, LONGEST)


def ask(candidates, now, full=(), *, deep):
    """One question about everything that is due: what may go after it."""
    wanted = candidates.questions(now, deep=deep)
    return [candidates.answered(each, full, now, deep=deep) for each in wanted]


class TestTwiceInARow:
    def test_a_group_goes_after_two_deep_looks_that_found_nothing(self, candidates):
        candidates.changed("acme", lowered(4, 2), 0)
        assert candidates.due() == KNOWN
        assert (GroupQuestion("acme", (2, 3)),) == candidates.questions(KNOWN, deep=False)
        assert [None] == ask(candidates, KNOWN, deep=False)
        assert candidates.due() == KNOWN + EVERY
        assert () == candidates.questions(KNOWN + EVERY, deep=False)
        assert [None] == ask(candidates, KNOWN + EVERY, deep=True)
        assert [EmptyGroup("acme", (2, 3), 1)] == ask(candidates, KNOWN + 2 * EVERY, deep=True)

    def test_never_before_a_producer_may_have_put_by_the_old_topic(self, candidates):
        candidates.changed("acme", lowered(4, 2), 0)
        assert () == candidates.questions(KNOWN - 1, deep=False) + candidates.questions(KNOWN - 1, deep=True)

    def test_a_group_that_holds_something_begins_anew(self, candidates):
        """It was found empty once, then a late put came: two more looks."""
        candidates.changed("acme", lowered(3, 2), 0)
        now = KNOWN
        reported = []
        for full, deep in (((), False), ((), True), ((2,), True), ((), False), ((), True), ((), True)):
            now = max(now, candidates.due())
            reported += ask(candidates, now, full, deep=deep)
        assert [None] * 5 + [EmptyGroup("acme", (2,), 1)] == reported

    @pytest.mark.parametrize("missing", [1, 2])
    def test_no_answer_is_not_empty(self, candidates, missing):
        """No owner, or one that is silent: the two looks begin anew."""
        candidates.changed("acme", lowered(3, 2), 0)
        reported = []
        answers = [((), False), ((), True), ((), True)]
        answers[missing] = (None, True)
        for full, deep in (*answers, ((), False), ((), True)):
            reported += ask(candidates, candidates.due(), full, deep=deep)
        assert not any(reported)

    def test_of_two_groups_the_empty_one_goes_first(self, candidates):
        candidates.changed("acme", lowered(4, 2), 0)
        reported = [ask(candidates, candidates.due(), (2,), deep=deep) for deep in (False, True, True)]
        assert [[None], [None], [EmptyGroup("acme", (3,), 1)]] == reported

    def test_a_group_that_came_later_is_waited_for_by_itself(self, candidates):
        candidates.changed("acme", lowered(4, 3), 0)
        candidates.changed("acme", accept(topic(2), 3, lowered(4, 3)), KNOWN // 2)
        assert (GroupQuestion("acme", (3,)),) == candidates.questions(KNOWN, deep=False)
        assert (GroupQuestion("acme", (2, 3)),) == candidates.questions(2 * KNOWN, deep=False)

    def test_a_group_that_is_taken_again_is_not_asked_about(self, candidates):
        candidates.changed("acme", lowered(4, 2), 0)
        candidates.changed("acme", accept(topic(4), 3, lowered(4, 2)), SECOND)
        assert candidates.due() is None

    def test_whoever_comes_to_lead_begins_anew(self, candidates):
        """Between two terms somebody else led: what was seen before is old."""
        candidates.changed("acme", lowered(3, 2), 0)
        for deep in (False, True):
            ask(candidates, candidates.due(), deep=deep)
        candidates.begin()
        reported = [ask(candidates, candidates.due(), deep=deep) for deep in (False, True, True)]
        assert [[None], [None], [EmptyGroup("acme", (2,), 1)]] == reported


class TestDeleted:
    def test_goes_as_a_whole(self, candidates):
        candidates.changed("acme", delete(lowered(3, 2)), 0)
        reported = [ask(candidates, candidates.due(), deep=deep) for deep in (False, True, True)]
        assert [EmptyGroup("acme", (0, 1, 2), 2)] == reported[-1]

    def test_not_at_all_while_one_group_holds_something(self, candidates):
        candidates.changed("acme", delete(lowered(3, 2)), 0)
        for _ in range(5):
            assert [None] == ask(candidates, candidates.due(), (1,), deep=False)
        assert () == candidates.questions(candidates.due(), deep=True)


class TestCost:
    def test_what_holds_something_is_asked_about_ever_more_seldom(self, candidates):
        """E2: a message that is due in a month keeps its group for a month."""
        candidates.changed("acme", lowered(3, 2), 0)
        pauses = []
        for _ in range(9):
            ask(candidates, candidates.due(), deep=False)
            now = candidates.due()
            ask(candidates, now, (2,), deep=True)  # only the streams tell
            pauses.append((candidates.due() - now) // SECOND)
        assert [4, 8, 16, 32, 60, 60, 60, 60, 60] == pauses

    def test_one_question_is_about_a_hundred_projects_and_twenty_thousand_groups(self, candidates):
        """E2: many topics change at once, and an answer fits a message."""
        for number in range(250):
            candidates.changed(f"p{number}", lowered(3, 2), number)
        assert len(candidates.questions(2 * KNOWN, deep=False)) == 100
        for number in range(3):
            candidates.changed(f"p{number}", accept(topic(1), 3, accept(topic(9_000), 1, None)), number)
        wanted = candidates.questions(2 * KNOWN, deep=False)
        assert sum(len(each.groups) for each in wanted) <= 20_000

    def test_edits_without_end_put_nothing_off(self, candidates):
        """Fault 19: a topic edited each 100 ms while its groups drain."""
        accepted = lowered(3, 2)
        for tenth in range(600):
            candidates.changed("acme", accepted, tenth * SECOND // 10)
            if ask(candidates, tenth * SECOND // 10, deep=False):
                break
        assert tenth == KNOWN // SECOND * 10

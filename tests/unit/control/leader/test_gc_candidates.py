"""Group candidates: which closed groups are collected, and when nodes are asked about them (E3)."""

import pytest

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.gc_candidates import EmptyGroup, GroupCandidates
from evenlane.engine.core.records.group_gc_messages import GroupQuestion
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
    """Ask all questions that are due; return the groups that can be collected after each answer."""
    questions = candidates.questions(now, deep=deep)
    return [candidates.on_answer(each, full, now, deep=deep) for each in questions]


class TestTwoEmptyLooks:
    def test_group_is_collected_after_two_empty_deep_looks(self, candidates):
        candidates.on_change("acme", lowered(4, 2), 0)
        assert candidates.due() == KNOWN
        assert (GroupQuestion("acme", (2, 3)),) == candidates.questions(KNOWN, deep=False)
        assert [None] == ask(candidates, KNOWN, deep=False)
        assert candidates.due() == KNOWN + EVERY
        assert () == candidates.questions(KNOWN + EVERY, deep=False)
        assert [None] == ask(candidates, KNOWN + EVERY, deep=True)
        assert [EmptyGroup("acme", (2, 3), 1)] == ask(candidates, KNOWN + 2 * EVERY, deep=True)

    def test_no_question_while_producers_may_use_old_topic(self, candidates):
        candidates.on_change("acme", lowered(4, 2), 0)
        assert () == candidates.questions(KNOWN - 1, deep=False) + candidates.questions(KNOWN - 1, deep=True)

    def test_late_put_restarts_the_two_looks(self, candidates):
        candidates.on_change("acme", lowered(3, 2), 0)
        now = KNOWN
        collected = []
        for full, deep in (((), False), ((), True), ((2,), True), ((), False), ((), True), ((), True)):
            now = max(now, candidates.due())
            collected += ask(candidates, now, full, deep=deep)
        assert [None] * 5 + [EmptyGroup("acme", (2,), 1)] == collected

    @pytest.mark.parametrize("missing", [1, 2])
    def test_missing_answer_restarts_the_two_looks(self, candidates, missing):
        """A partition has no owner, or its owner is silent."""
        candidates.on_change("acme", lowered(3, 2), 0)
        collected = []
        answers = [((), False), ((), True), ((), True)]
        answers[missing] = (None, True)
        for full, deep in (*answers, ((), False), ((), True)):
            collected += ask(candidates, candidates.due(), full, deep=deep)
        assert not any(collected)

    def test_empty_group_is_collected_before_full_sibling(self, candidates):
        candidates.on_change("acme", lowered(4, 2), 0)
        collected = [ask(candidates, candidates.due(), (2,), deep=deep) for deep in (False, True, True)]
        assert [[None], [None], [EmptyGroup("acme", (3,), 1)]] == collected

    def test_each_closed_group_has_its_own_waiting_time(self, candidates):
        candidates.on_change("acme", lowered(4, 3), 0)
        candidates.on_change("acme", accept(topic(2), 3, lowered(4, 3)), KNOWN // 2)
        assert (GroupQuestion("acme", (3,)),) == candidates.questions(KNOWN, deep=False)
        assert (GroupQuestion("acme", (2, 3)),) == candidates.questions(2 * KNOWN, deep=False)

    def test_reopened_group_is_no_candidate(self, candidates):
        candidates.on_change("acme", lowered(4, 2), 0)
        candidates.on_change("acme", accept(topic(4), 3, lowered(4, 2)), SECOND)
        assert candidates.due() is None

    def test_new_term_restarts_the_two_looks(self, candidates):
        """Findings of an earlier term may be outdated: another node led in between."""
        candidates.on_change("acme", lowered(3, 2), 0)
        for deep in (False, True):
            ask(candidates, candidates.due(), deep=deep)
        candidates.begin()
        collected = [ask(candidates, candidates.due(), deep=deep) for deep in (False, True, True)]
        assert [[None], [None], [EmptyGroup("acme", (2,), 1)]] == collected


class TestDeletedTopic:
    def test_is_collected_as_a_whole(self, candidates):
        candidates.on_change("acme", delete(lowered(3, 2)), 0)
        collected = [ask(candidates, candidates.due(), deep=deep) for deep in (False, True, True)]
        assert [EmptyGroup("acme", (0, 1, 2), 2)] == collected[-1]

    def test_stays_while_any_group_is_full(self, candidates):
        candidates.on_change("acme", delete(lowered(3, 2)), 0)
        for _ in range(5):
            assert [None] == ask(candidates, candidates.due(), (1,), deep=False)
        assert () == candidates.questions(candidates.due(), deep=True)


class TestCost:
    def test_full_group_is_examined_at_growing_intervals(self, candidates):
        """E2: a message that is due in a month keeps its group for a month."""
        candidates.on_change("acme", lowered(3, 2), 0)
        pauses = []
        for _ in range(9):
            ask(candidates, candidates.due(), deep=False)
            now = candidates.due()
            ask(candidates, now, (2,), deep=True)  # only the streams show it
            pauses.append((candidates.due() - now) // SECOND)
        assert [4, 8, 16, 32, 60, 60, 60, 60, 60] == pauses

    def test_questions_are_bounded_in_projects_and_groups(self, candidates):
        """E2: many topics change at once, and each answer fits into a message."""
        for number in range(250):
            candidates.on_change(f"p{number}", lowered(3, 2), number)
        assert len(candidates.questions(2 * KNOWN, deep=False)) == 100
        for number in range(3):
            candidates.on_change(f"p{number}", accept(topic(1), 3, accept(topic(9_000), 1, None)), number)
        questions = candidates.questions(2 * KNOWN, deep=False)
        assert sum(len(each.groups) for each in questions) <= 20_000

    def test_continuous_edits_do_not_postpone_a_question(self, candidates):
        """Fault 19: a topic edited each 100 ms while its groups drain."""
        accepted = lowered(3, 2)
        for tenth in range(600):
            candidates.on_change("acme", accepted, tenth * SECOND // 10)
            if ask(candidates, tenth * SECOND // 10, deep=False):
                break
        assert tenth == KNOWN // SECOND * 10

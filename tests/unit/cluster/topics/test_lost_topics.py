"""A node's sentence about topics that etcd has lost, while they return (F2)."""

import random
import time

import pytest

from evenlane.engine.cluster.topics.lost_topics import LostTopics


@pytest.fixture
def lost():
    return LostTopics()


def test_no_topic_is_lost_at_first(lost):
    assert (0, False, frozenset()) == (len(lost), "a" in lost, lost.all())
    assert not lost.discard("a")


def test_sentence_names_the_only_topic(lost):
    lost.add({"acme"})
    assert "misses 1 topic in etcd, which had it (acme): `evenlane topics apply FILE` restores it" == lost.sentence


def test_sentence_names_five_of_many_topics(lost):
    lost.add({"c", "b", "a", "e", "d"})
    assert (
        "misses 5 topics in etcd, which had them (a, b, c, d, e): `evenlane topics apply FILE` restores them"
        == lost.sentence
    )
    lost.add({"aa"})
    assert "(a, aa, b, c, d, ...)" in lost.sentence


@pytest.mark.parametrize("seed", range(5))
def test_sentence_is_right_while_topics_return(lost, seed):
    """They return in any order, and more are lost meanwhile."""
    chance = random.Random(seed)
    projects = [f"p{n:02}" for n in range(60)]
    left = set(projects[:40])
    lost.add(left)
    back = projects[:40]
    chance.shuffle(back)
    for number, project in enumerate(back):
        if number == 20:
            left |= set(projects[40:])
            lost.add(projects[40:])
        assert lost.discard(project)
        assert not lost.discard(project)
        left.remove(project)
        assert (len(left), left) == (len(lost), lost.all())
        assert f"misses {len(left)} topics" in lost.sentence
        assert f"({', '.join(sorted(left)[:5])}, ...)" in lost.sentence


def test_cost_of_a_return_does_not_grow_with_the_number_of_topics():
    """Sorting all of them each time would take some seconds."""
    lost = LostTopics()
    lost.add([f"p{n}" for n in range(5_000)])
    began = time.process_time()
    for n in range(5_000):
        lost.discard(f"p{n}")
        assert lost.sentence
    assert time.process_time() - began < 1

"""What a node says of topics that etcd has lost, while they come back (F2)."""

import random
import time

import pytest

from evenlane.engine.cluster.topics.lost_topics import LostTopics


@pytest.fixture
def lost():
    return LostTopics()


def test_none(lost):
    assert (0, False, frozenset()) == (len(lost), "a" in lost, lost.all())
    assert not lost.discard("a")


def test_one(lost):
    lost.add({"acme"})
    assert "misses 1 topic in etcd, which had it (acme): `evenlane topics apply FILE` brings it back" == lost.sentence


def test_more_of_which_five_are_named(lost):
    lost.add({"c", "b", "a", "e", "d"})
    assert (
        "misses 5 topics in etcd, which had them (a, b, c, d, e): `evenlane topics apply FILE` brings them back"
        == lost.sentence
    )
    lost.add({"aa"})
    assert "(a, aa, b, c, d, ...)" in lost.sentence


@pytest.mark.parametrize("seed", range(5))
def test_the_sentence_is_right_while_they_come_back(lost, seed):
    """In any order, and while more are lost."""
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


def test_thousands_come_back_one_by_one():
    """N: what each costs doesn't grow with how many there are. To sort all each time takes some seconds."""
    lost = LostTopics()
    lost.add([f"p{n}" for n in range(5_000)])
    began = time.process_time()
    for n in range(5_000):
        lost.discard(f"p{n}")
        assert lost.sentence
    assert time.process_time() - began < 1

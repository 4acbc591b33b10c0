"""The formulas that place a message. They never change, so they are tested with known vectors."""

from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.hashing import digest, group_of, jump_hash, partition_of

keys = st.integers(0, (1 << 64) - 1)
names = st.text("abcdefgh-_0123456789", min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("key", "buckets", "expected"),
    [
        (10863919174838991, 11, 6),
        (2016238256797177309, 11, 3),
        (1673758223894951030, 11, 5),
        (2, 100001, 80343),
        (2201, 100001, 22152),
        (2202, 100001, 15018),
    ],
)
def test_jump_hash_matches_other_implementations(key, buckets, expected):
    """The vectors of Guava's and go-jump's own tests."""
    assert expected == jump_hash(key, buckets)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (0, [0] * 19),
        (1, [0, 0, 0, 0, 0, 0, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 17, 17]),
        (0xDEADBEEF, [0, 1, 2, 3, 3, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 16, 16, 16]),
        (0x0DDC0FFEEBADF00D, [0, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 15, 15, 15, 15]),
    ],
)
def test_jump_hash_matches_vectors_for_growing_buckets(key, expected):
    assert expected == [jump_hash(key, buckets) for buckets in range(1, 20)]


def test_jump_hash_matches_vectors_for_small_keys():
    expected = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
    assert expected == [jump_hash(key, 100) for key in range(20)]


@given(keys, st.integers(1, 300))
def test_key_stays_or_moves_to_the_new_bucket(key, buckets):
    """K6: a raised quota never reshuffles keys. Read backwards, only keys of the removed bucket move."""
    before, after = jump_hash(key, buckets), jump_hash(key, buckets + 1)
    assert after in {before, buckets}
    assert 0 <= before < buckets


@pytest.mark.parametrize("buckets", [0, -1])
def test_number_of_buckets_must_be_positive(buckets):
    with pytest.raises(ValueError, match="at least 1"):
        jump_hash(1, buckets)


@given(st.text(max_size=30))
def test_digest_is_the_whole_sha_256_as_a_number(text):
    """P1."""
    assert int(sha256(text.encode()).hexdigest(), 16) == digest(text)


@given(st.text(max_size=30), st.integers(1, 50))
def test_group_is_the_jump_hash_of_the_low_64_bits(key, groups):
    low = int(sha256(key.encode()).hexdigest()[-16:], 16)
    assert jump_hash(low, groups) == group_of(key, groups)


@given(names, st.integers(0, 500), st.integers(1, 12), st.integers(1, 300))
def test_partition_is_the_digest_of_project_and_slot(project, group, spread, partitions):
    """P1, P13: computed with `hashlib` alone. A project is on at most `spread` partitions, one per slot."""
    slot = group % spread
    text = f"{project}/{slot}" if slot else project
    expected = int.from_bytes(sha256(text.encode()).digest(), "big") % partitions
    assert expected == partition_of(project, group, spread, partitions, "hashed")


@given(names, st.integers(0, 500), st.integers(1, 12), st.integers(1, 300))
def test_consecutive_partitions_begin_at_the_digest_of_the_project(project, group, spread, partitions):
    """P1, P13: the first one is the same in both layouts."""
    first = int(sha256(project.encode()).hexdigest(), 16) % partitions
    assert (first + group % spread) % partitions == partition_of(project, group, spread, partitions, "consecutive")
    assert first == partition_of(project, 0, spread, partitions, "hashed")


def test_projects_are_balanced_over_the_partitions():
    sizes = Counter(partition_of(f"project-{number}", 0, 12, 128, "consecutive") for number in range(25_600))
    assert (128, True) == (len(sizes), max(sizes.values()) < 1.35 * 200)


def test_groups_and_partitions_match_known_vectors():
    """These never change: keys would move to other groups while their earlier messages wait."""
    assert [1, 1, 2, 7] == [group_of(key, 8) for key in ("", "order-1", "order-2", "ключ")]
    assert [87, 5, 12, 64, 87] == [partition_of("acme", group, 12, 128, "hashed") for group in (0, 1, 2, 3, 12)]
    assert [87, 88, 89, 98, 87] == [partition_of("acme", group, 12, 128, "consecutive") for group in (0, 1, 2, 11, 12)]

"""Tests of the ledger's checkers: what they find in entries written by hand, and what they let pass."""

import pytest

from tests.ledger.entries import Entry
from tests.ledger.promises import begun_again, begun_too_late, never_handled
from tests.ledger.replay import SECOND, check_handled_twice, check_key_order, check_repeats, fault
from tests.support.promises.history import Fault

KEYS = dict.fromkeys("abc", ("acme", "k", "mid"))


def ledger(*lines):
    """Entries from `SECONDS PID WHAT ID [ATTEMPT [SEQUENCE [EPOCH]]]`; a sequence is the letter's place by default."""
    found = []
    for line in lines:
        at, pid, what, own, *more = line.split()
        given = [*map(int, more)]
        attempt, sequence, epoch = given + [1, ord(own) - 96, int(pid)][len(given) :]
        at_ns = int(float(at) * SECOND)
        found.append(
            Entry(at_ns, int(pid), what, "acme", own, attempt, "LANES_online_3", sequence, epoch, "mid", "", at_ns)
        )
    return found


def test_acknowledged_message_without_an_end_is_found():
    """L."""
    assert {"b"} == never_handled("ab", ledger("1 1 begin a", "2 1 ok a", "3 1 begin b"))


def test_begin_under_an_older_epoch_is_found():
    """O."""
    entries = ledger("1 1 begin a", "2 2 begin b", "3 1 begin c")
    assert ["c"] == [entry.id for entry in begun_too_late(entries)]
    assert [] == begun_again(entries)


def test_repeats_of_a_crash_are_counted():
    """D: of a message in flight, and of one that ended a moment before."""
    entries = ledger(
        "1 1 begin a", "1.1 1 ok a", "1.2 1 begin b", "3 2 begin a", "3.1 2 ok a", "3.2 2 begin b", "3.3 2 ok b"
    )
    assert 2 == check_repeats(entries, fault("crash", 1, int(1.3 * SECOND)))
    assert ["a"] == check_handled_twice(entries, [1])


@pytest.mark.parametrize(
    ("entries", "crashed_at"),
    [
        (ledger("1 1 begin a", "1.1 1 ok a", "9 2 begin a", "9.1 2 ok a"), None),
        (ledger("1 1 begin a", "1.1 1 ok a", "9 2 begin a", "9.1 2 ok a"), 8),
        (ledger("7.8 1 begin a", "7.9 1 ok a", "9 2 begin a", "9.1 2 ok a", "9.2 2 begin a", "9.3 2 ok a"), 8),
        (ledger("7.8 3 begin a", "7.9 3 ok a", "9 2 begin a", "9.1 2 ok a"), 8),
    ],
    ids=["no process died", "long settled", "twice", "of another process"],
)
def test_unexplained_repeat_is_found(entries, crashed_at):
    """D."""
    faults = [fault("crash", 1, crashed_at * SECOND)] if crashed_at else []
    with pytest.raises(AssertionError, match="without a fault"):
        check_repeats(entries, *faults)


def test_repeat_of_a_failed_attempt_whose_copy_met_an_outage_is_explained():
    """D: by the crash that followed, not by the outage alone."""
    entries = ledger("1 1 begin a", "1.1 1 fail a", "2.8 1 begin b", "4 2 begin a", "4.1 2 ok a")
    outage = Fault("acks late", int(1.15 * SECOND), end=2 * SECOND)
    assert 1 == check_repeats(entries, fault("crash", 1, int(2.8 * SECOND)), outage)
    for faults in ([fault("crash", 1, int(2.8 * SECOND))], [outage]):
        with pytest.raises(AssertionError, match="without a fault"):
            check_repeats(entries, *faults)


def test_message_stored_twice_is_found():
    """D."""
    entries = ledger("1 1 begin a", "1.1 1 ok a", "2 1 begin a 1 7", "2.1 1 ok a 1 7")
    with pytest.raises(AssertionError, match="stored elsewhere"):
        check_repeats(entries)
    with pytest.raises(AssertionError):
        check_handled_twice(entries, [])


def test_retry_is_no_repeat():
    """D: neither in place nor as a copy."""
    assert 0 == check_repeats(ledger("1 1 begin a", "1.1 1 fail a", "2 1 begin a 2", "2.1 1 ok a 2"))
    assert 0 == check_repeats(ledger("1 1 begin a", "1.1 1 fail a", "2 1 begin a 2 7", "2.1 1 ok a 2 7"))


def test_keys_in_order_pass():
    """K6: with a retry in place, and repeats after a crash."""
    entries = ledger(
        "1 1 begin a", "1.1 1 fail a", "1.2 1 begin a 2", "1.3 1 ok a 2", "2 1 begin b",
        "4 2 begin a 2", "4.1 2 ok a 2", "4.2 2 begin b", "4.3 2 ok b", "5 2 begin c", "5.1 2 ok c",
    )  # fmt: skip
    assert 3 == check_key_order(entries, KEYS, killed=[1])


def test_keys_in_order_pass_though_a_last_attempt_is_repeated():
    """K6: a crash repeats the last attempt of a dead letter, and what started after it."""
    entries = ledger(
        "1 1 begin a", "1.1 1 fail a", "1.2 1 begin a 2", "1.3 1 fail a 2", "2 1 begin b",
        "4 2 begin a 2", "4.1 2 fail a 2", "4.2 2 begin b", "4.3 2 ok b",
    )  # fmt: skip
    assert 2 == check_key_order(entries, KEYS, killed=[1])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("1 1 begin a, 1.1 1 begin b, 2 1 ok a, 2.1 1 ok b", "of the same key runs on"),
        ("1 1 begin a, 1.1 1 fail a, 2 1 begin b, 2.1 1 ok b, 3 1 begin a 2, 3.1 1 ok a 2", "hasn't ended"),
        ("1 1 begin a, 1.1 1 fail a, 2 1 begin b, 2.1 1 ok b, 3 1 begin a 2, 3.1 1 fail a 2", "hasn't ended"),
        ("1 1 begin b, 1.1 1 ok b, 2 1 begin a, 2.1 1 ok a", "hasn't ended"),
        (
            "1 1 begin a, 1.1 1 ok a, 2 1 begin b, 3 2 begin b, 3.1 2 ok b, 4 2 begin a, 4.1 2 ok a",
            "under the same epoch",
        ),
        ("1 1 begin a, 1.1 1 fail a, 2 1 begin a 2 7, 2.1 1 ok a 2 7", "for a later attempt"),
    ],
    ids=["overlap", "before the retry", "before the last retry", "put order", "backwards", "copy"],
)
def test_broken_key_order_is_found(lines, words):
    """K6."""
    with pytest.raises(AssertionError, match=words):
        check_key_order(ledger(*lines.split(", ")), KEYS, killed=[1] if words == "under the same epoch" else [])

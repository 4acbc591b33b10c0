"""The promises of a cluster, checked from the outside: by the handlers' ledger and by the history of etcd.

Entries of the ledger are replayed into the checkers that the simulation calls, too (tests/support/promises).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.support.promises import rates
from tests.support.promises.epochs import Epochs
from tests.support.promises.history import unended
from tests.support.promises.owner_keys import OwnerKeys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.ledger.cluster import ProcessCluster
    from tests.ledger.entries import Entry
    from tests.ledger.history import EtcdHistory

SECOND = 1_000_000_000


def partition(entry: Entry) -> int:
    return int(entry.stream.rpartition("_")[2])


def begins(entries: Iterable[Entry]) -> list[Entry]:
    """In the order of their times: each process writes when it can."""
    return sorted((entry for entry in entries if entry.what == "begin"), key=lambda entry: entry.at)


# ---- L


def never_handled(acknowledged: Iterable[str], entries: Iterable[Entry]) -> set[str]:
    """L: the acknowledged messages that no handler ended."""
    return set(unended(acknowledged, {entry.id for entry in entries if entry.what == "ok"}))


# ---- D (tests/ledger/replay.py has the repeats after a fault)


def begun_again(entries: Iterable[Entry]) -> list[Entry]:
    """D: each begin of a message that began once more later. Without a fault there is none."""
    by_id: dict[str, list[Entry]] = defaultdict(list)
    for entry in begins(entries):
        by_id[entry.id].append(entry)
    return [entry for each in by_id.values() for entry in each[:-1]]


# ---- O


def begun_too_late(entries: Iterable[Entry]) -> list[Entry]:
    """O: the begins under an epoch older than that of an earlier begin of the same partition."""
    epochs = Epochs()
    return [entry for entry in begins(entries) if not epochs.record_start(partition(entry), entry.epoch)]


def check_owner_keys(history: EtcdHistory) -> None:
    """O, Z1: each change of an owner key."""
    keys = OwnerKeys()
    for _, key, item in history.seen:
        if key.startswith("owners/"):
            wrong = keys.changed(key, None if item is None else (item.create_revision, item.lease))
            assert not wrong, f"{key} {wrong}"


def check_generations(history: EtcdHistory) -> None:
    """Z5: the newest generation, and that of each node's plan, rise with each write."""
    for key in ("generation", *(f"plan/{name}" for name in _planned(history))):
        generations = [record["generation"] for record in history.values(key)]
        assert rates.is_rising(generations), key


def check_cluster(cluster: ProcessCluster) -> None:
    """L, O, Z1, Z5: of all that has happened so far."""
    entries = cluster.entries()
    assert set() == never_handled(cluster.acknowledged, entries)
    assert [] == begun_too_late(entries)
    check_owner_keys(cluster.history)
    check_generations(cluster.history)


def _planned(history: EtcdHistory) -> set[str]:
    return {seen.key.partition("/")[2] for seen in history.seen if seen.key.startswith("plan/")}


# ---- Q


def most_in_a_second(entries: Iterable[Entry], since: int = 0) -> int:
    """Q: the most messages handed out in any half-open window of a second that starts at `since` or later. On a busy
    machine, their handlers begin later.
    """
    return rates.most_in_a_second(sorted(entry.chosen for entry in begins(entries) if entry.chosen >= since))


# ---- V


def pause(entries: Iterable[Entry], number: int, since: int, until: int) -> float:
    """V: the longest time, in s, without a begin in a partition, of those that overlap this span."""
    times = [entry.at for entry in begins(entries) if partition(entry) == number]
    return rates.longest_pause(times, since, until) / SECOND

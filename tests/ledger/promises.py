"""The promises of a cluster, checked from the outside: by the handlers' ledger and by what etcd told."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tests.ledger.entries import Entry
from tests.ledger.history import History
from tests.oracles.owner_keys import OwnerKeys

SECOND = 1_000_000_000
SETTLE_INTERVAL_NS = SECOND // 10
# Dispatch stops while settles are older than the interval and a second, on a busy machine too.
UNSETTLED_NS = SETTLE_INTERVAL_NS + SECOND


def partition(entry: Entry) -> int:
    return int(entry.stream.rpartition("_")[2])


def begins(entries: Iterable[Entry]) -> list[Entry]:
    """In the order of their times: each process writes when it can."""
    return sorted((entry for entry in entries if entry.what == "begin"), key=lambda entry: entry.at)


# ---- L


def never_handled(acknowledged: Iterable[str], entries: Iterable[Entry]) -> set[str]:
    """L: what was acknowledged, and no handler ended."""
    return set(acknowledged) - {entry.id for entry in entries if entry.what == "ok"}


# ---- D


def begun_again(entries: Iterable[Entry]) -> list[Entry]:
    """Each begin of a message that was begun once more later, by whoever."""
    by_id: dict[str, list[Entry]] = defaultdict(list)
    for entry in begins(entries):
        by_id[entry.id].append(entry)
    return [entry for each in by_id.values() for entry in each[:-1]]


def in_hand(entries: Iterable[Entry], pid: int, until: int) -> tuple[Counter[str], list[str]]:
    """Of a process that went at `until`: the ids of what it had in flight, and of what it had ended too late to settle
    it.
    """
    running: Counter[str] = Counter()
    late = []
    for entry in entries:
        if entry.pid == pid and entry.at <= until:
            running[entry.id] += 1 if entry.what == "begin" else -1
            if entry.what != "begin" and until - entry.at <= UNSETTLED_NS:
                late.append(entry.id)
    return +running, late


def may_come_again(entries: Iterable[Entry], pid: int, until: int) -> tuple[int, int]:
    """How much of it was in flight, and how much had ended too late."""
    running, late = in_hand(entries, pid, until)
    return running.total(), len(late)


def check_doubled_by(entries: Sequence[Entry], pid: int, until: int) -> int:
    """D: only the work of the node that went at `until` came again, and not more of it than may. How much did."""
    again = Counter(entry.pid for entry in begun_again(entries))
    running, late = may_come_again(entries, pid, until)
    assert set() == again.keys() - {pid}
    assert again[pid] <= running + late
    return again[pid]


# ---- O


def begun_too_late(entries: Iterable[Entry]) -> list[Entry]:
    """O: begins under an epoch after somebody had begun anything of the same partition under a newer one."""
    newest: dict[int, int] = {}
    late = []
    for entry in begins(entries):
        if entry.epoch < newest.get(partition(entry), 0):
            late.append(entry)
        newest[partition(entry)] = max(newest.get(partition(entry), 0), entry.epoch)
    return late


def check_owner_keys(history: History) -> None:
    """O, Z1: what etcd told of them."""
    keys = OwnerKeys()
    for _, key, item in history.seen:
        if key.startswith("owners/"):
            wrong = keys.changed(key, None if item is None else (item.create_revision, item.lease))
            assert not wrong, f"{key} {wrong}"


def check_generations(history: History) -> None:
    """Z5: the newest generation and that of each node's plan rise with each write."""
    for key in ("generation", *(f"plan/{name}" for name in _planned(history))):
        generations = [record["generation"] for record in history.values(key)]
        assert sorted(set(generations)) == generations, key


def _planned(history: History) -> set[str]:
    return {seen.key.partition("/")[2] for seen in history.seen if seen.key.startswith("plan/")}


# ---- Q


def most_in_a_second(entries: Iterable[Entry], since: int = 0) -> int:
    """Q: the most begins in any half-open window of a second, of those from an instant on."""
    times = sorted(entry.at for entry in entries if entry.what == "begin" and entry.at >= since)
    return max((bisect_left(times, at + SECOND) - place for place, at in enumerate(times)), default=0)


# ---- V


def pause(entries: Iterable[Entry], number: int, since: int, until: int) -> float:
    """The longest time, in seconds, in which nothing of a partition was begun, of those that overlap this span."""
    times = sorted(entry.at for entry in entries if entry.what == "begin" and partition(entry) == number)
    first, last = bisect_right(times, since), bisect_right(times, until)
    times = times[max(0, first - 1) : last + 1]
    return max((later - sooner for sooner, later in pairwise(times)), default=until - since) / SECOND

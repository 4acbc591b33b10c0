"""Where each acknowledged message is in the end, from the outside: ledger, dead letters, and what the streams hold."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.core.wire import headers as h
from tests.ledger import settle_logs
from tests.ledger.entries import Entry
from tests.ledger.promises import in_hand
from tests.ledger.supervised import End


async def waiting(settings: Settings, partitions: int) -> set[str]:
    """The ids of all messages that wait, read while no node runs."""
    logs = await settle_logs.read(settings, partitions)
    store = connections.store(settings, "ledger test")
    await store.open()
    found: set[str] = set()
    try:
        for kind in ("lanes", "later"):
            for number in range(partitions):
                lane = LaneId(kind, number)
                sequences = sorted(logs[names.stream(settings.env, lane)].waiting)
                for stored in await store.get(lane, sequences):
                    assert stored is not None
                    found.add(_id(stored.headers))
    finally:
        await store.close()
    return found


def _id(headers: bytes) -> str:
    own = (h.value(headers, h.ID) or "").partition(":")[2]
    return own.rsplit(":", 3)[0] if h.value(headers, h.ORIGIN) is not None else own


def may_come_again(entries: Sequence[Entry], killed: Iterable[End]) -> set[str]:
    """The ids of what killed processes had in flight, or had ended too late to settle it."""
    found: set[str] = set()
    for pid in {end.pid for end in killed}:
        own = [entry for entry in entries if entry.pid == pid]
        found.update(*in_hand(own, pid, max((entry.at for entry in own), default=0)))
    return found


def check_doubled(entries: Sequence[Entry], killed: Iterable[End]) -> list[str]:
    """D: what was handled twice had been in the hands of a process that was killed, or was ended by it too late to
    settle it. (A copy for the next attempt may have been put by then, too: both are handled.) Returns their ids.
    """
    handled = Counter(entry.id for entry in entries if entry.what == "ok")
    twice = sorted(own for own, count in handled.items() if count > 1)
    assert [] == sorted(set(twice) - may_come_again(entries, killed))
    return twice


def check_order(
    entries: Iterable[Entry], acknowledged: Mapping[str, tuple[str, int]], keys: Mapping[str, tuple[str, str, str]]
) -> int:
    """K6, of a key: a message begins when those before it of its key and priority have ended for good; how many
    pairs that was seen of. Where a process was killed the first end counts: what came again had been done.
    """
    begun: dict[str, int] = {}
    ended: dict[str, dict[int, tuple[int, bool]]] = defaultdict(dict)  # id -> attempt -> first end, and whether it's ok
    for entry in sorted(entries, key=lambda each: each.at):
        if entry.id not in keys:
            continue
        if entry.what == "begin":
            begun.setdefault(entry.id, entry.at)
        else:
            ended[entry.id].setdefault(entry.attempt, (entry.at, entry.what == "ok"))
    lines: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for own in sorted(keys.keys() & acknowledged.keys(), key=lambda each: acknowledged[each][1]):
        lines[keys[own]].append(own)
    pairs = 0
    for line in lines.values():
        over = 0
        for own in line:
            assert begun[own] >= over, f"{own} of {keys[own]} began before what was put before it had ended"
            succeeded = [at for at, ok in ended[own].values() if ok]
            over = max(over, min(succeeded) if succeeded else max(at for at, _ in ended[own].values()))
            pairs += 1
    return pairs

"""The checkers themselves: each finds what breaks its promise in a history made by hand, and lets pass what doesn't."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine import headers as h
from tests.simulation.history import Bounds, Fault, Rules
from tests.simulation.loop import SECOND, Actor
from tests.simulation.promises import Promises

_TOPICS = {"shop": Rules(ordered=True, max_attempts=2), "plain": Rules(max_attempts=2)}
_BOUNDS = Bounds(settle=SECOND // 2, aftermath=3 * SECOND, recovery=9 * SECOND, unowned=3 * SECOND, waiting=3 * SECOND)


class History:
    """One partition, and who owns it; time stands still unless `wait` is called."""

    def __init__(self, *poison: str) -> None:
        self._now = 1_000 * SECOND
        self._dead_leases: set[int] = set()
        loop: Any = self
        etcd: Any = SimpleNamespace(lives=lambda lease: lease not in self._dead_leases)
        killers = dict.fromkeys(poison, "shop")
        self.promises = Promises(
            loop, etcd, "online", _BOUNDS, lambda *_, **__: None, lambda: self._now, _TOPICS, killers
        )  # fmt: skip
        self._streams = {
            name: SimpleNamespace(name=name, created="1", last_at=0) for name in ("LANES_online_0", "DEAD_online")
        }
        self._at: dict[str, int] = {}
        self.epoch = 0

    @property
    def now(self) -> int:
        return self._now

    def time(self) -> float:
        return self._now / SECOND

    def wait(self, seconds: float) -> None:
        self._now += int(seconds * SECOND)

    def owned(self, name: str, epoch: int) -> Actor:
        """The partition changes hands; the epoch is its lease, too."""
        item = SimpleNamespace(key="/evenlane/online/owners/0", value=b"", create_revision=epoch, lease=epoch)
        changed: Any = self.promises.owners.changed
        if self.epoch:
            changed(SimpleNamespace(kind="delete", item=item))
        changed(SimpleNamespace(kind="put", item=item))
        self.epoch = epoch
        return Actor(name)

    def lease_ends(self, lease: int) -> None:
        self._dead_leases.add(lease)

    def fault(self, kind: str, node: Actor | None = None, by: str | None = None) -> None:
        self.promises.faults.append(Fault(kind, self._now, node, end=self._now, by=by))

    def crash(self, node: Actor) -> None:
        node.dead = True
        self.fault("crash", node)

    def put(self, uid: str, key: str | None = "k", project: str = "shop", expires: int = 0) -> None:
        headers = {h.ID: f"{project}:{uid}"} | ({h.KEY: key} if key else {})
        headers |= {h.EXPIRES: str(expires)} if expires else {}
        self._at[uid] = len(self._at) + 1
        self._store("LANES_online_0", f"lanes.online.0.{project}.0.mid", headers, self._at[uid])

    def retry(self, uid: str, project: str = "shop") -> None:
        """A copy for a later attempt is stored."""
        self._copy(uid, f"later.online.0.{project}.0.mid.1", project, "LANES_online_0", {})

    def dead(self, uid: str, reason: str, project: str = "shop") -> None:
        self._copy(uid, f"dead.online.{project}", project, "DEAD_online", {h.REASON: reason})

    def _copy(self, uid: str, subject: str, project: str, stream: str, more: dict[str, str]) -> None:
        origin = f"LANES_online_0:{self._at[uid]}"
        headers = {h.ID: f"{project}:{uid}:{origin}:1", h.ORIGIN: origin, **more}
        self._store(stream, subject, headers, 900 + len(self._at))

    def _store(self, name: str, subject: str, headers: dict[str, str], sequence: int) -> None:
        stream: Any = self._streams[name]
        stream.last_at = self._now
        receipt: Any = SimpleNamespace(stream=name, sequence=sequence, duplicate=False)
        self.promises.stored(stream, receipt, subject, h.encode(headers))

    def starts(self, uid: str, node: Actor, attempt: int = 1, project: str = "shop") -> Any:
        message: Any = SimpleNamespace(
            id=uid, stream="LANES_online_0", sequence=self._at[uid], partition=0, epoch=self.epoch, attempt=attempt,
            project=project,
        )  # fmt: skip
        run = node.context.run(self.promises.starts, message)

        def ends(how: Any = "well", after: float = 0.0) -> None:
            self.promises.ends(message, run, how, after)

        return ends

    def handles(self, uid: str, node: Actor, how: str = "well", attempt: int = 1, project: str = "shop") -> None:
        self.starts(uid, node, attempt, project)(how)

    @property
    def broken(self) -> str | None:
        return None if self.promises.broken is None else self.promises.broken.promise


@pytest.fixture
def history():
    return History()


def test_order_one_after_the_other(history):
    """Order: a key's messages in turn, others meanwhile; a failing one again, until its dead letter is stored."""
    node = history.owned("n1", 1)
    for uid in ("a", "b", "c"):
        history.put(uid)
    history.put("other", key="j")
    history.put("none", key=None)
    ends = history.starts("a", node)
    for uid in ("other", "none"):
        history.handles(uid, node)
    ends("failed")
    history.handles("a", node, "failed", attempt=2)
    history.dead("a", "failed 2 times")
    history.handles("b", node, "paused")
    history.handles("b", node)
    history.handles("c", node)
    assert history.broken is None


def test_order_found_overlapping(history):
    """Order: another of the key while one runs, and the same one twice."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.starts("b", node)
    assert history.broken == "order"


def test_order_found_before_the_retry(history):
    """Order: the next one while a failed one still has attempts; or has none, and no dead letter."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", node, "failed")
    history.starts("b", node)
    assert history.broken == "order"


def test_order_found_copied(history):
    """Order: a retry that is put as a copy could be overtaken."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.retry("a")
    assert history.broken == "order"


def test_order_of_plain_topics(history):
    """Order: none is promised to topics that aren't ordered."""
    node = history.owned("n1", 1)
    history.put("a", project="plain")
    history.put("b", project="plain")
    history.starts("b", node, project="plain")
    history.handles("a", node, "failed", project="plain")
    history.retry("a", project="plain")
    assert history.broken is None


def test_order_repeated_after_a_crash(history):
    """Order: a later owner may begin anew with what wasn't durable, in put order."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.crash(first)
    second = history.owned("n2", 2)
    history.handles("a", second)
    history.handles("b", second, attempt=2)
    assert history.broken is None


def test_order_found_backwards(history):
    """Order: one owner never goes back, whatever its predecessor left."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.crash(first)
    second = history.owned("n2", 2)
    history.handles("b", second, attempt=2)
    history.handles("a", second)
    assert history.broken == "order"


def test_order_after_a_lost_lease(history):
    """Order: what runs on under a lease that has ended may overlap; under one that lives it may not."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", first)
    history.lease_ends(1)
    history.fault("pause", first)
    second = history.owned("n2", 2)
    history.handles("a", second)
    history.starts("b", second)
    assert history.broken is None


def test_order_found_overlapping_a_hand_over(history):
    """Order: a hand-over is no excuse."""
    first = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.handles("a", first)
    history.starts("b", first)
    history.put("c")
    history.dead("b", "rejected")  # though its handler goes on
    second = history.owned("n2", 2)
    history.starts("c", second)
    assert history.broken == "order"


def test_order_after_expiry(history):
    """Order, K5: one whose time is over holds up nobody."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.put("b")
    history.wait(1.1)
    history.handles("b", node)
    assert history.broken is None


def test_order_of_what_was_replaced(history):
    """Order: a stream that was rolled back promises nothing of what it held."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    history.starts("a", node)
    history.promises.cut_back("LANES_online_0", 2)
    history.starts("b", node)
    assert history.broken is None


def test_repeat_needs_a_higher_number(history):
    """D, attempts: one that failed is made again under the next number; under the same one after a crash only."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.wait(1)
    history.handles("a", node, "failed", attempt=1)
    assert history.broken == "D"


def test_attempts_found_too_many(history):
    """Attempts: the number says how often a handler was begun."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "paused")
    history.handles("a", node, attempt=2)
    assert history.broken in {"attempts", "D"}


def test_attempts_found_dead_too_early(history):
    """Attempts, K4: the last attempt must have been made."""
    node = history.owned("n1", 1)
    history.put("a")
    history.handles("a", node, "failed")
    history.dead("a", "failed 2 times")
    assert history.broken == "attempts"


def _kill(history: History, uid: str, name: str, epoch: int, attempt: int) -> None:
    node = history.owned(name, epoch)
    history.starts(uid, node, attempt)
    history.promises.attempts.kills(uid, node)
    node.dead = True
    history.fault("crash", node, by=uid)


def test_poison_dead_after_its_attempts():
    """X11: N kills, then the dead letter."""
    history = History("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    _kill(history, "p", "n2", 2, 2)
    history.dead("p", "its process died in attempt 2")
    assert history.broken is None


def test_poison_found_one_too_many():
    """X11: N + 1 kills need another fault."""
    history = History("p")
    history.put("p", key=None)
    for number in (1, 2, 3):
        _kill(history, "p", f"n{number}", number, number)
    assert history.broken == "poison"


def test_poison_one_more_by_another_fault():
    """X11: N + 1 kills and no more if something else was wrong."""
    history = History("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    history.fault("nats down")
    for number in (2, 3):
        _kill(history, "p", f"n{number}", number, number)
    assert history.broken is None
    _kill(history, "p", "n4", 4, 4)
    assert history.broken == "poison"


def test_poison_found_neighbours_paying():
    """X11: who is beside a known killer has nothing counted."""
    history = History("p")
    history.put("p", key=None)
    _kill(history, "p", "n1", 1, 1)
    history.put("m", key=None)
    node = history.owned("n2", 2)
    history.starts("p", node, 2)
    history.starts("m", node)
    history.promises.attempts.kills("p", node)
    node.dead = True
    history.fault("crash", node, by="p")
    history.starts("m", history.owned("n3", 3), attempt=2)
    assert history.broken == "poison"


def test_poison_found_wrong_reason(history):
    """X11: nobody is blamed for more attempts than it had."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.starts("a", node)
    history.crash(node)
    history.handles("a", history.owned("n2", 2), "failed", attempt=2)
    history.dead("a", "its process died in attempt 3")
    assert history.broken == "poison"


def test_progress_found(history):
    """Progress: a message that waits for nobody is begun soon."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b", key="j")
    history.handles("a", node)
    history.wait(4)
    history.starts("b", node)
    assert history.broken == "progress"


def test_progress_of_who_has_to_wait(history):
    """Progress: nor the next of a key that waited, nor what a pause or a long handler held up, is late."""
    node = history.owned("n1", 1)
    history.put("a")
    history.put("b")
    ends = history.starts("a", node)
    history.wait(4)
    ends()
    history.handles("b", node)
    history.put("c")
    history.put("d", key="j")
    history.starts("c", node)("paused", 5.0)
    history.wait(5)
    history.handles("c", node)
    history.handles("d", node)
    assert history.broken is None


def test_pause_found_ignored(history):
    """Pause: nothing of the topic starts on that node meanwhile; elsewhere it does."""
    node = history.owned("n1", 1)
    history.put("a", key=None)
    history.put("b", key=None)
    history.starts("a", node)("paused", 2.0)
    history.wait(1)
    history.starts("b", node)
    assert history.broken == "pause"


def test_expired_found_handled(history):
    """K5: nobody's handler starts when its time is over; while it isn't, it may not be settled unhandled."""
    node = history.owned("n1", 1)
    history.put("a", expires=history.now + SECOND)
    history.wait(2)
    history.starts("a", node)
    assert history.broken == "K5"

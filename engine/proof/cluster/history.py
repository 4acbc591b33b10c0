"""The history of a cluster as etcd shows it: plans, owner keys, generations, each with the time of its observation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from evenlane.ring.coordination.ports import Event, KeyValue

_KINDS = ("nodes", "plan", "owners", "done", "leader", "generation")


class Reign(NamedTuple):
    """The life of an owner key, from its creation to its deletion (None: it still exists); ns since boot, as a watch
    saw them.
    """

    partition: int
    epoch: int
    owner: str
    created: int
    deleted: int | None = None


class OwnershipHistory:
    """Follows an environment inside `async with`. `reigns` are past and present ones, in the order of their begin."""

    def __init__(self, endpoint: str, env: str) -> None:
        self._etcd, self._prefix = EtcdCoordination((endpoint,)), names.key(env, "")
        self._keys: dict[str, KeyValue] = {}
        self._running: dict[int, int] = {}  # partition -> the index of its reign
        self.reigns: list[Reign] = []
        self.planned: list[int] = []  # when each generation was observed
        self.leaderless: list[int] = []  # when a leader's key was deleted
        self._changed = asyncio.Event()
        self._broken = ""
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._etcd.close()

    def break_off(self, reason: str) -> None:
        """End all waits: the awaited changes can't happen any more."""
        self._broken = self._broken or reason
        self._changed.set()

    def check(self) -> None:
        """Raises EvenlaneError if it was broken off."""
        if self._broken:
            raise EvenlaneError(f"the scenario was aborted: {self._broken}")

    async def wait_until(self, holds: Callable[[], bool], within_s: float, what: str) -> None:
        """Wait until a change in etcd makes it true. Raises EvenlaneError, which says `what` was waited for."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    self.check()
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise EvenlaneError(f"the scenario was aborted: waited {within_s:g} s for {what} without success") from None

    # ---- the present

    @property
    def leader(self) -> str:
        return str(self._value("leader").get("id", ""))

    @property
    def nodes(self) -> set[str]:
        return self._list_names("nodes")

    @property
    def generation(self) -> int:
        return int(self._value("generation").get("generation", 0))

    @property
    def plan(self) -> dict[int, str]:
        """The planned owner of each partition."""
        return {p: node for node in self._list_names("plan") for p in self._value(f"plan/{node}").get("partitions", [])}

    @property
    def owners(self) -> dict[int, str]:
        return {number: self.reigns[place].owner for number, place in self._running.items()}

    def is_carried_out(self, nodes: set[str], partitions: int) -> bool:
        """Whether exactly these nodes are alive, and everything is planned, owned as planned, and confirmed."""
        if nodes != self.nodes or nodes != self._list_names("plan") or len(self.plan) < partitions:
            return False
        done = all(self._value(f"plan/{n}")["generation"] == self._value(f"done/{n}").get("generation") for n in nodes)
        return done and self.plan == self.owners

    def _list_names(self, kind: str) -> set[str]:
        return {key.partition("/")[2] for key in self._keys if key.startswith(f"{kind}/")}

    def _value(self, key: str) -> dict[str, Any]:
        item = self._keys.get(key)
        found = msgspec.json.decode(item.value) if item is not None else {}
        return found if isinstance(found, dict) else {}

    # ---- changes

    async def _follow(self) -> None:
        async for change in self._etcd.watch(self._prefix):
            self._take(change, now_ns())
            self._changed.set()

    def _take(self, change: Listing | Event, now: int) -> None:
        if isinstance(change, Listing):  # the first one, or what was missed
            there = {item.key: item for item in change.items}
            for key in [key for key in self._keys if self._prefix + key not in there]:
                self._note(key, None, now)
            for item in sorted(there.values(), key=lambda each: each.mod_revision):
                self._note(item.key.removeprefix(self._prefix), item, now)
        else:
            put = change.item if change.kind == "put" else None
            self._note(change.item.key.removeprefix(self._prefix), put, now)

    def _note(self, key: str, item: KeyValue | None, now: int) -> None:
        kind = key.partition("/")[0]
        if kind not in _KINDS:
            return
        if kind == "generation":
            self.planned.append(now)
        if kind == "leader" and item is None:
            self.leaderless.append(now)
        if kind == "owners":
            self._reign(int(key.partition("/")[2]), item, now)
        if item is None:
            self._keys.pop(key, None)
        else:
            self._keys[key] = item

    def _reign(self, partition: int, item: KeyValue | None, now: int) -> None:
        place = self._running.get(partition)
        if place is not None and (item is None or item.create_revision != self.reigns[place].epoch):
            self.reigns[place] = self.reigns[place]._replace(deleted=now)
            del self._running[partition]
        if item is not None and partition not in self._running:
            owner = str(msgspec.json.decode(item.value).get("id", ""))
            self._running[partition] = len(self.reigns)
            self.reigns.append(Reign(partition, item.create_revision, owner, now))

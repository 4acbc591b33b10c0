"""The history of etcd: every change of an environment's keys, with the time when the watch reported it."""

import asyncio
from typing import Any, NamedTuple, Self

import msgspec

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import KeyValue, Listing

_PREFIX = names.key("online", "")


class Seen(NamedTuple):
    """A change. `at` is in ns since boot. `key` is without the environment. `item` is None for a deletion."""

    at: int
    key: str
    item: KeyValue | None


class Reign(NamedTuple):
    """An owner key, from its creation to its deletion (None: it still exists). Times are in ns since boot."""

    partition: int
    epoch: int
    owner: str
    created: int
    deleted: int | None


class EtcdHistory:
    """`async with EtcdHistory(endpoints) as history:`; `keys` are the present keys, by name in the environment."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._etcd = EtcdCoordination(endpoints)
        self.keys: dict[str, KeyValue] = {}
        self.seen: list[Seen] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._etcd.close()

    async def _follow(self) -> None:
        async for update in self._etcd.watch(_PREFIX):
            now = now_ns()
            if isinstance(update, Listing):
                there = {item.key.removeprefix(_PREFIX): item for item in update.items}
                for key in self.keys.keys() - there.keys():
                    self._note(now, key, None)
                for key, item in sorted(there.items(), key=lambda each: each[1].mod_revision):
                    if self.keys.get(key) != item:
                        self._note(now, key, item)
            else:
                item = update.item
                self._note(now, item.key.removeprefix(_PREFIX), item if update.kind == "put" else None)

    def _note(self, at: int, key: str, item: KeyValue | None) -> None:
        self.seen.append(Seen(at, key, item))
        if item is None:
            self.keys.pop(key, None)
        else:
            self.keys[key] = item

    # ---- the present keys

    def value(self, key: str) -> dict[str, Any]:
        """The record under a key; empty if there is no key, or its value isn't a record."""
        item = self.keys.get(key)
        return _record(item) if item is not None else {}

    @property
    def leader(self) -> str:
        return str(self.value("leader").get("id", ""))

    @property
    def nodes(self) -> set[str]:
        """The registered nodes. A key without a lease was put by hand."""
        return {name for name in self.named("nodes") if self.keys[f"nodes/{name}"].lease}

    @property
    def owners(self) -> dict[int, str]:
        return {int(n): str(self.value(f"owners/{n}").get("id")) for n in self.named("owners") if _is_number(n)}

    @property
    def planned(self) -> dict[int, str]:
        plans = {name: self.value(f"plan/{name}").get("partitions", []) for name in self.named("plan")}
        return {partition: name for name, partitions in plans.items() for partition in partitions}

    def owned(self, node: str) -> list[int]:
        return sorted(partition for partition, owner in self.owners.items() if owner == node)

    def named(self, kind: str) -> set[str]:
        """The keys `<kind>/<name>`, by name."""
        return {key.partition("/")[2] for key in self.keys if key.startswith(f"{kind}/")}

    def is_owned_by(self, nodes: set[str], partitions: int) -> bool:
        """Whether exactly these nodes are registered, own all partitions as the plan says, and have confirmed its
        generation.
        """
        planned, owners = self.planned, {p: owner for p, owner in self.owners.items() if p < partitions}
        if nodes != self.nodes or not nodes <= self.named("plan") or not nodes >= set(planned.values()):
            return False
        if planned.keys() != set(range(partitions)) or planned != owners:
            return False
        return all(
            self.value(f"plan/{node}").get("generation") == self.value(f"done/{node}").get("generation", -1)
            for node in nodes
        )

    # ---- the past

    def reigns(self) -> list[Reign]:
        """The reigns over all partitions, in the order of their begins."""
        all_: list[Reign] = []
        running: dict[int, int] = {}  # partition -> its place
        for at, key, item in self.seen:
            kind, _, name = key.partition("/")
            if kind != "owners" or not _is_number(name):
                continue
            partition = int(name)
            if partition in running and (item is None or all_[running[partition]].epoch != item.create_revision):
                place = running.pop(partition)
                all_[place] = all_[place]._replace(deleted=at)
            if item is not None and partition not in running:
                running[partition] = len(all_)
                owner = str(_record(item).get("id", ""))
                all_.append(Reign(partition, item.create_revision, owner, at, None))
        return all_

    def values(self, key: str) -> list[dict[str, Any]]:
        """All records that were ever under this key."""
        return [_record(seen.item) for seen in self.seen if seen.key == key and seen.item is not None]


def _record(item: KeyValue) -> dict[str, Any]:
    try:
        record = msgspec.json.decode(item.value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return record if isinstance(record, dict) else {}


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and name == str(int(name))

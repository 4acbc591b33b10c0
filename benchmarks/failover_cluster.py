"""The cluster of `benchmarks.failover`: `evenlane run --processes N` under load, with the history of etcd."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from benchmarks.failover_handler import VARIABLE
from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.config.settings import load
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Put
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import Listing
from evenlane.ring.coordination.ports import PutKey as Write
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from evenlane.engine.runtime.embedded.pair import Servers

_ROOT = Path(__file__).parents[1]
_COMMAND = (sys.executable, "-P", "-c", "from evenlane.engine.cli.main import main; main()", "run")
_HANDLER = "benchmarks.failover_handler:handle"
_TIMEOUT_S = 60.0
_LOOK_S = 0.01
_KEYS_AT_ONCE = 100
_SHORT = "short"
"""A topic on all nodes, with all its work on one of them: the others lend it their shares (docs/adr/0019)."""
_SHORT_QPS, _SHORT_GROUPS, _SHORT_LOAD = 200, 64, 0.9


class Seen(NamedTuple):
    """A change of a key, without the environment's prefix. `at` is when the watch reported it, ns since boot."""

    at: int
    key: str
    put: bool


class Handled(NamedTuple):
    at: int
    pid: int
    partition: int
    epoch: int
    id: str


class Cluster:
    """Inside `async with`, the cluster serves under load. `seen` are the changes of etcd's keys."""

    def __init__(self, servers: Servers, folder: Path, options: argparse.Namespace) -> None:
        self._servers, self._options = servers, options
        self._ledger, self.log = folder / "handled", folder / "log"
        given = {
            "nats": servers.nats.url, "etcd": servers.etcd.endpoint, "partitions": options.partitions,
            "lease_ttl": options.lease_ttl, "group_qps": 10_000, "max_group_qps": 10_000,
        }  # fmt: skip
        self._given = {name: str(value) for name, value in given.items()}
        self._settings = load(self._given, environ={}).settings
        self._etcd = EtcdCoordination(self._settings.etcd)
        self._prefix = names.key(self._settings.env, "")
        self._keys: dict[str, bytes] = {}
        self._acknowledged: set[str] = set()
        self._handled: list[Handled] = []
        self._read = 0
        self._projects = _one_for_each(options.partitions)
        self._tasks: list[asyncio.Task[None]] = []
        self.seen: list[Seen] = []

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._follow()))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENLANE_")}
        environ |= {f"EVENLANE_{name.upper()}": value for name, value in self._given.items()}
        environ |= {"PYTHONPATH": str(_ROOT), VARIABLE: str(self._ledger)}
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND, "--handler", _HANDLER, "--node", "n", "--processes", str(self._options.processes),
                env=environ, stdout=asyncio.subprocess.DEVNULL, stderr=log,
            )  # fmt: skip
        await self._until(lambda: len(self.list_names("nodes")) == self._options.processes, "all nodes to register")
        await self._make_topics()
        await self.wait_until_settled()
        self._tasks.append(asyncio.create_task(self._load()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        await self._etcd.close()

    # ---- the keys in etcd

    async def _follow(self) -> None:
        async for update in self._etcd.watch(self._prefix):
            at = now_ns()
            items = update.items if isinstance(update, Listing) else (update.item,)
            for item in items:
                put = isinstance(update, Listing) or update.kind == "put"
                key = item.key.removeprefix(self._prefix)
                self.seen.append(Seen(at, key, put))
                if put:
                    self._keys[key] = item.value
                else:
                    self._keys.pop(key, None)

    def value(self, key: str) -> dict[str, Any]:
        return msgspec.json.decode(self._keys[key]) if key in self._keys else {}

    def list_names(self, kind: str) -> set[str]:
        return {key.partition("/")[2] for key in self._keys if key.startswith(f"{kind}/")}

    def list_owned(self, node: str) -> list[int]:
        return [int(name) for name in self.list_names("owners") if self.value(f"owners/{name}")["id"] == node]

    async def wait_for_puts(self, keys: set[str], since: int) -> None:
        """Wait until the watch has reported a put of all these keys after `since`. It may be late."""
        await self._until(
            lambda: keys <= {seen.key for seen in self.seen if seen.put and seen.at > since}, "the watch to report"
        )

    async def wait_until_settled(self) -> None:
        """Wait until all nodes are registered, and each has carried out its plan."""

        def is_settled() -> bool:
            nodes = self.list_names("nodes")
            planned = {node: self.value(f"plan/{node}") for node in nodes}
            return (
                len(nodes) == self._options.processes
                and all(plan and sorted(self.list_owned(node)) == plan["partitions"] for node, plan in planned.items())
                and sum(len(plan["partitions"]) for plan in planned.values()) == self._options.partitions
                and all(self.value(f"done/{node}").get("generation") == planned[node]["generation"] for node in nodes)
            )

        await self._until(is_settled, "all nodes to own their planned partitions")

    # ---- the load

    async def _make_topics(self) -> None:
        value = msgspec.json.encode({"qps": 10_000})
        writes = [Write(f"{self._prefix}topics/{project}", value) for project in self._projects]
        short = {"qps": _SHORT_QPS, "groups": _SHORT_GROUPS, "spread": self._options.partitions}
        writes.append(Write(f"{self._prefix}topics/{_SHORT}", msgspec.json.encode(short)))
        for start in range(0, len(writes), _KEYS_AT_ONCE):
            await self._etcd.txn([], writes[start : start + _KEYS_AT_ONCE])
        await self._until(lambda: len(self.list_names("accepted")) >= len(writes), "topics to be accepted")

    async def _load(self) -> None:
        clock = asyncio.get_running_loop().time
        async with Producer(settings=self._settings) as producer:
            start, rounds = clock(), 0
            short = round(_SHORT_QPS * _SHORT_LOAD * self._options.every)
            while True:
                puts = [Put(project, b"", id=f"{project}-{rounds}") for project in self._projects]
                puts += [Put(_SHORT, b"", group=0, id=f"{_SHORT}-{rounds}-{n}") for n in range(short)]
                outcomes = await producer.put_many(puts)
                self._acknowledged |= {
                    str(put.id)
                    for put, outcome in zip(puts, outcomes, strict=True)
                    if not isinstance(outcome, Exception)
                }
                rounds += 1
                await asyncio.sleep(max(0.0, start + rounds * self._options.every - clock()))

    # ---- the handled messages

    async def find_first_handlings(self, partitions: Iterable[int], pid: int, since: int) -> dict[int, int]:
        """Partition -> when another process handled its first message."""
        self._look()
        place, missing, first = len(self._handled), set(partitions), dict[int, int]()

        def is_served() -> bool:
            nonlocal place
            self._look()
            for each in self._handled[place:]:
                if each.partition in missing and each.pid != pid and each.at > since:
                    missing.discard(each.partition)
                    first[each.partition] = each.at
            place = len(self._handled)
            return not missing

        await self._until(is_served, "all its partitions to be served again")
        return first

    def count_doubles(self, pid: int) -> int:
        """The number of messages that this process handled, and another one, too."""
        self._look()
        mine = {each.id for each in self._handled if each.pid == pid}
        return len({each.id for each in self._handled if each.pid != pid and each.id in mine})

    async def count_lost(self) -> int:
        """The number of acknowledged messages that are never handled."""
        self._tasks.pop().cancel()  # the load
        handled: set[str] = set()

        def is_all() -> bool:
            self._look()
            handled.update(each.id for each in self._handled)
            return self._acknowledged <= handled

        try:
            await self._until(is_all, "all to be handled")
        except TimeoutError:
            return len(self._acknowledged - handled)
        return 0

    def _look(self) -> None:
        if not self._ledger.exists():
            return
        with self._ledger.open("rb") as file:
            file.seek(self._read)
            fresh = file.read()
        fresh = fresh[: fresh.rfind(b"\n") + 1]
        self._read += len(fresh)
        for line in fresh.decode().splitlines():
            at, pid, partition, epoch, own = line.split(" ")
            self._handled.append(Handled(int(at), int(pid), int(partition), int(epoch), own))

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while not holds():
                    if self._process.returncode is not None:
                        raise RuntimeError(f"the nodes have ended: {self.log.read_text()[-2000:]}")
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise TimeoutError(f"waited {_TIMEOUT_S:g} s in vain for {what}") from None


def _one_for_each(partitions: int) -> list[str]:
    """A project of one group for each partition."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(partition_of(f"p{number}", 0, 1, partitions, "hashed"), f"p{number}")
        number += 1
    return [found[number] for number in range(partitions)]

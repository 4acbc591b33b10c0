"""A node that is started again whenever its process ends, as systemd or Kubernetes would do."""

import asyncio
import contextlib
from types import TracebackType
from typing import NamedTuple, Self

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.ring.coordination.ports import CoordinationError
from evenlane.ring.membership.records import NodeRecord, decode
from tests.ledger.process import NodeProcess
from tests.ledger.world import ProcessWorld
from tests.support.until import until


class End(NamedTuple):
    """The end of a process. `at` is in ns since boot; `status` is the kernel's."""

    at: int
    pid: int
    status: int


class Supervised:
    """Inside `async with`, the node runs; `ends` are its ends so far, also those by SIGTERM.

    The lease of a process that dies is revoked, as the supervisor of `--processes` does. So no node waits for the
    lease's end, and leases can be long: a busy machine loses a lease of 2 s now and then, and a drain without a lease
    isn't clean.
    """

    def __init__(self, world: ProcessWorld, name: str, handler: str = "obey", **settings: object) -> None:
        self._world, self.name, self._handler, self._settings = world, name, handler, {"lease_ttl": 10} | settings
        self.ends: list[End] = []
        self.node: NodeProcess | None = None
        self.serving = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Return once the node serves. A start that fails counts as an end, and is repeated."""
        self.node = self._world.add_node(self._handler, name=self.name, **self._settings)
        await self.node.spawn()
        self._task = asyncio.create_task(self._watch(self.node))
        try:
            await until(lambda: self.serving, 120, f"{self.name} to serve")
        except BaseException:
            self._task.cancel()  # otherwise it restarts the node that the world kills at its end
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the node, which must end cleanly unless the test has failed."""
        assert self.node is not None
        assert self._task is not None
        if kind is None:  # SIGTERM would kill a process that is just starting
            await until(lambda: self.serving, 60, f"{self.name} to serve again")
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self.node.running and kind is None:
            assert 0 == await self.node.stop(), self.node.last_words()

    async def _watch(self, node: NodeProcess) -> None:
        while True:
            pid = node.pid
            with contextlib.suppress(AssertionError):  # the process may end before it serves
                await node.ready()
                self.serving = True
            status = await node.ended()
            self.ends.append(End(now_ns(), pid, status))
            self.serving = False
            if status:
                await self._revoke(pid)
            await node.spawn()

    async def _revoke(self, pid: int) -> None:
        etcd = self._world.etcd
        with contextlib.suppress(CoordinationError):
            item = await etcd.get(names.key(self._world.settings.env, "nodes", self.name))
            if item is not None and decode(NodeRecord, item.key, item.value).pid == pid:
                await etcd.revoke(item.lease)

    @property
    def killed(self) -> list[int]:
        """The ids of the processes that didn't end cleanly."""
        return [end.pid for end in self.ends if end.status != 0]

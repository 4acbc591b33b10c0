"""A node that is started again whenever its process ends, as systemd or Kubernetes would."""

import asyncio
import contextlib
from types import TracebackType
from typing import NamedTuple, Self

from evenlane.engine.base.clock import now_ns
from tests.ledger.process import NodeProcess
from tests.ledger.world import ProcessWorld
from tests.support.until import until


class End(NamedTuple):
    """One end of a process; `at` is ns since boot, `status` as the kernel has it."""

    at: int
    pid: int
    status: int


class Supervised:
    """Inside `async with` it runs; `ends` are those so far. SIGTERM by `restart` counts as one, too."""

    def __init__(self, world: ProcessWorld, name: str, handler: str = "obey", **settings: object) -> None:
        self._world, self.name, self._handler, self._settings = world, name, handler, settings
        self.ends: list[End] = []
        self.node: NodeProcess | None = None
        self.serving = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Return once the node serves. A start that fails counts as an end and is repeated."""
        self.node = self._world.add_node(self._handler, name=self.name, **self._settings)
        await self.node.spawn()
        self._task = asyncio.create_task(self._watch(self.node))
        try:
            await until(lambda: self.serving, 120, f"{self.name} to serve")
        except BaseException:
            self._task.cancel()  # else it starts again what the world kills at its end
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It is stopped in order, unless the test has failed."""
        assert self.node is not None
        assert self._task is not None
        if kind is None:  # SIGTERM would kill a process that has only just begun
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
            await node.spawn()

    @property
    def killed(self) -> list[End]:
        """Those that weren't in order."""
        return [end for end in self.ends if end.status != 0]

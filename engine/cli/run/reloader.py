"""Reloader of `evenlane up --reload`: restarts a node, as a process of its own, when Python files change."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.cli.run.supervisor import ChildProcess, describe_exit, node_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from evenlane.engine.cli.run.lifeline import NodeReady
    from evenlane.engine.cli.run.supervisor import Revoke

_log = structlog.get_logger(__name__)

DRAIN_GRACE_S = 2.0
_KILL_AFTER_S = 2.0  # beyond the drain: includes the second that threads have
_FAREWELL_S = 3.0  # time limit for revoking the lease of a process that was killed


def watched_folders(handler: str, here: Path) -> list[Path]:
    """Return the folders to watch: the current one, and the one with the handler's module if it is elsewhere."""
    try:
        found = importlib.util.find_spec(handler.partition(":")[0].partition(".")[0])
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin or not (module := Path(found.origin)).is_file():
        return [here]
    return [here] if module.resolve().is_relative_to(here.resolve()) else [here, module.parent]


class Reloader:
    """Keeps one node process alive until `stop`, and replaces it after each change of a Python file in `folders`.

    A process that ends by itself, as its module is broken, is started again after the next change. `arguments` are
    those of `evenlane run`; `environ` is added to this process's environment. `revoke` ends the leases of a node that
    was killed.
    """

    def __init__(
        self,
        node: str,
        arguments: Sequence[str],
        folders: Sequence[Path],
        *,
        environ: Mapping[str, str],
        revoke: Revoke,
    ) -> None:
        self._node, self._folders, self._revoke = node, folders, revoke
        self._command = node_command([*arguments, f"--node={node}", f"--drain-grace={DRAIN_GRACE_S:g}s"])
        self._environ = os.environ | environ
        self._stop, self._changed = asyncio.Event(), asyncio.Event()

    def stop(self) -> None:
        """Make `run` return after the node has drained."""
        self._stop.set()

    async def run(self, on_ready: Callable[[NodeReady], None]) -> None:
        """Run until `stop`. `on_ready` is called when the first node is ready; the log has the later ones. Raises
        OSError.
        """
        is_first = True

        def report(ready: NodeReady | None) -> None:
            nonlocal is_first
            if ready is None:
                return
            if is_first:
                on_ready(ready)
            else:
                _log.info("the node is ready again", node=self._node, http=ready.http)
            is_first = False

        watching = asyncio.create_task(self._watch())
        try:
            while not self._stop.is_set():
                self._changed.clear()
                await self._live(report, watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        from watchfiles import PythonFilter, awatch

        async for changes in awatch(*self._folders, watch_filter=PythonFilter()):
            _log.info("files changed: the node is restarted", files=sorted(path for _, path in changes)[:10])
            self._changed.set()

    async def _live(self, report: Callable[[NodeReady | None], None], watching: asyncio.Task[None]) -> None:
        """Run one process until the next change or `stop`."""
        with ChildProcess(self._command, self._environ) as life:
            listening = asyncio.create_task(life.listen(report))
            ended = asyncio.create_task(life.wait_for_end())
            changed, stopped = asyncio.create_task(self._changed.wait()), asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({ended, changed, stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    _log.warning(
                        "the node has ended: it starts again when a file changes", node=self._node,
                        ended=describe_exit(ended.result()),
                    )  # fmt: skip
                    await self._revoke_rest(life)
                    await asyncio.wait({changed, stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
                else:
                    await life.stop_within(DRAIN_GRACE_S + _KILL_AFTER_S)
                    await self._revoke_rest(life)
                if watching.done():
                    watching.result()
            finally:
                for task in (listening, ended, changed, stopped):
                    task.cancel()

    async def _revoke_rest(self, life: ChildProcess) -> None:
        """Revoke the leases of a process that has ended out of order, so that the next one gets its partitions."""
        if (claims := life.read_claims()).leases:
            await asyncio.wait({asyncio.create_task(self._revoke(self._node, claims))}, timeout=_FAREWELL_S)

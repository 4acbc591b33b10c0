"""Replays and drops of dead letters in the background, as each may take hours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import structlog

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = structlog.get_logger(__name__)

Kind = Literal["replay", "drop"]
Document = dict[str, Any]

_MOST = 4  # concurrent jobs. They don't count as reads, and don't queue
_ENDS_KEPT = 100  # projects whose last jobs are remembered
_DOING = {"replay": "replayed", "drop": "dropped"}


class ReplayInProgress(EvenlaneError):
    """The project's dead letters are already being replayed or dropped, or the node's jobs are all in use."""


class DeadLetterJobs:
    """The jobs of a node, at most one of each project. `soon_s` is how long a request waits for the end of its job.

    Invariants: a project is in `_running` exactly while its job runs; `_progress` has only such projects; `_ends` has
    the results of finished jobs by project and kind, the newest last.
    """

    def __init__(self, soon_s: float) -> None:
        self.soon_s = soon_s
        self._running: dict[str, tuple[Kind, asyncio.Task[Document]]] = {}
        self._progress: dict[str, Document] = {}
        self._ends: dict[tuple[str, Kind], Document] = {}

    def describe(self, project: str) -> Document:
        """Return the progress of a running job, and the results of the last ones."""
        running, _ = self._running.get(project, ("", None))
        progress = self._progress.get(project)
        return {
            "replay": progress if running == "replay" else None,
            "last_replay": self._ends.get((project, "replay")),
            "drop": progress if running == "drop" else None,
            "last_drop": self._ends.get((project, "drop")),
        }

    def note_progress(self, project: str, progress: Document) -> None:
        if project in self._running:
            self._progress[project] = progress

    async def run(
        self,
        project: str,
        kind: Kind,
        work: Callable[[], Awaitable[Document]],
        on_error: Callable[[BaseException, Document], Document],
    ) -> Document:
        """Run `work`, and return its result, or the progress if it takes longer than `soon_s`. If it fails later,
        `on_error` makes the result of the error and the last progress. Raises ReplayInProgress, and what `work` raises.
        """
        self._check(project)
        job = asyncio.create_task(_begin(work), name=f"{kind} of {project}")
        self._running[project] = kind, job
        self._ends.pop((project, kind), None)
        job.add_done_callback(lambda _: self._on_end(project, kind, job, on_error))
        await asyncio.wait([job], timeout=self.soon_s)
        if job.done():
            return job.result()
        return {"project": project, "running": True, **self._progress.get(project, {})}

    async def close(self) -> None:
        """End all jobs: what they haven't done yet stays a dead letter."""
        jobs = [job for _, job in self._running.values()]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    def _check(self, project: str) -> None:
        if project in self._running:
            doing = _DOING[self._running[project][0]]
            raise ReplayInProgress(
                f"the dead letters of {project} are already being {doing}: wait until that has ended"
            )
        if len(self._running) >= _MOST:
            raise ReplayInProgress(
                f"this node is already replaying or dropping dead letters of {_MOST} projects: wait until one has"
                " ended, or ask another node"
            )

    def _on_end(
        self,
        project: str,
        kind: Kind,
        job: asyncio.Task[Document],
        on_error: Callable[[BaseException, Document], Document],
    ) -> None:
        """Keep the result for later lists: after a long job, its request has already been answered."""
        del self._running[project]
        progress = self._progress.pop(project, {})
        if job.cancelled():
            return
        error = job.exception()
        self._ends[project, kind] = job.result() if error is None else on_error(error, progress)
        if len(self._ends) > _ENDS_KEPT:
            del self._ends[next(iter(self._ends))]


async def _begin(work: Callable[[], Awaitable[Document]]) -> Document:
    return await work()


def explain(project: str, kind: Kind, error: BaseException) -> str:
    """Return one sentence. A defect is logged with all details."""
    if isinstance(error, EvenlaneError):
        _log.warning("dead letters could not be replayed or dropped", project=project, kind=kind, reason=str(error))
        return str(error)
    _log.error("dead letters could not be replayed or dropped", project=project, kind=kind, exc_info=error)
    return "a defect of the node ended it: see the node's log"

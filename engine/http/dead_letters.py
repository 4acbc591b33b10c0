"""Dead letters by HTTP: lists, shows and replays them.

Each request opens connections of its own, so that people's requests don't delay messages.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.admin.dead_letters.client import opened
from evenlane.engine.admin.dead_letters.replay import ReplayResult
from evenlane.engine.base.names import check_project
from evenlane.engine.cluster import connections
from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT
from evenlane.engine.errors import ConfigError, EvenlaneError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.admin.dead_letters.client import DeadLetterClient
    from evenlane.engine.admin.dead_letters.replay import ReplayProgress
    from evenlane.engine.base.config.settings import Settings

_log = structlog.get_logger(__name__)

MOST_LISTED = 1_000
_AT_ONCE = 8  # concurrent lists and reads
_REPLAYS = 4  # concurrent replays. They don't count as reads, and don't queue, as each may take hours
_PREVIEW = 4_096  # characters of a body
_SOON_S = 3.0  # a longer replay continues in the background
_NAMED = 20  # failures in an answer
_ENDS_KEPT = 100  # projects whose last replay is remembered


class ReplayInProgress(EvenlaneError):
    """The project's dead letters are already being replayed, or the node's replays are all in use."""


class DeadLetterService:
    """Serves dead letters. `close` ends running replays: messages that weren't put yet stay dead letters.

    Invariants: a project is in `_replays` exactly while its replay runs; `_progress` has only such projects; `_ends`
    has the results of finished replays, newest last.
    """

    def __init__(self, settings: Settings, *, soon_s: float = _SOON_S) -> None:
        self._settings, self._soon_s = settings, soon_s
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._replays: dict[str, asyncio.Task[ReplayResult]] = {}
        self._progress: dict[str, ReplayProgress] = {}
        self._ends: dict[str, dict[str, Any]] = {}  # newest last

    async def list(self, project: str, limit: int) -> dict[str, Any]:
        """List the oldest dead letters, as `evenlane dlq list --json`, with the progress of a running replay and the
        result of the last one.

        Raises EvenlaneError.
        """
        _check(project)
        async with self._read() as dead_letters:
            total = await dead_letters.count(project)
            found = await dead_letters.oldest(project, limit) if total else []
            kept = await dead_letters.kept()
        documents = [dead_letter.document(body=False) for dead_letter in found]
        replay = self._progress[project]._asdict() if project in self._progress else None
        return {
            "project": project,
            "total": total,
            "keep_seconds": kept or None,
            "letters": documents,
            "replay": replay,
            "last_replay": self._ends.get(project),
        }

    async def show(self, project: str, sequence: int) -> dict[str, Any]:
        """Show one dead letter with the first part of its body. Raises EvenlaneError."""
        _check(project)
        async with self._read() as dead_letters:
            document = (await dead_letters.get(project, sequence)).document(body=True)
        for kind in ("body", "body_base64"):
            if kind in document:
                document |= {kind: document[kind][:_PREVIEW], "cut": len(document[kind]) > _PREVIEW}
        return document

    async def replay(self, project: str, sequence: int | None) -> dict[str, Any]:
        """Replay one dead letter, or all present ones. Returns the result, or the progress if the replay takes longer
        than `soon_s`. Raises EvenlaneError.
        """
        _check(project)
        if project == UNROUTABLE_PROJECT:
            raise ConfigError("_stray holds messages that no queue had, so there is none to replay them into")
        if project in self._replays:
            raise ReplayInProgress(
                f"the dead letters of {project} are already being replayed: wait until that has ended"
            )
        if len(self._replays) >= _REPLAYS:
            raise ReplayInProgress(
                f"this node is already replaying dead letters of {_REPLAYS} projects: wait until one has ended, or ask"
                " another node"
            )
        replay = asyncio.create_task(self._replay(project, sequence), name=f"replay of {project}")
        self._replays[project] = replay
        self._ends.pop(project, None)
        replay.add_done_callback(lambda _: self._on_end(project))
        await asyncio.wait([replay], timeout=self._soon_s)
        if replay.done():
            return _outcome(project, replay.result())
        progress = self._progress.get(project)
        return {"project": project, "running": True, **(progress._asdict() if progress is not None else {})}

    async def close(self) -> None:
        replays = [*self._replays.values()]
        for each in replays:
            each.cancel()
        await asyncio.gather(*replays, return_exceptions=True)

    async def _replay(self, project: str, sequence: int | None) -> ReplayResult:
        def on_progress(progress: ReplayProgress) -> None:
            self._progress[project] = progress

        _log.info("dead letters are replayed by HTTP", project=project, sequence=sequence or "all")
        async with self._open() as dead_letters:
            done = await dead_letters.replay(project, sequence, on_progress=on_progress)
        _log.info(
            "dead letters were replayed by HTTP",
            project=project, replayed=done.replayed, failed=len(done.failed), stopped=done.stopped,
        )  # fmt: skip
        return done

    def _on_end(self, project: str) -> None:
        """Keep the result for later lists: after a long replay, its request has already been answered."""
        replay, progress = self._replays.pop(project), self._progress.pop(project, None)
        if replay.cancelled():
            return
        error = replay.exception()
        if error is None:
            end = _outcome(project, replay.result())
        else:
            end = _outcome(
                project, ReplayResult(progress.replayed if progress is not None else 0, [], _explain(project, error))
            )
        self._ends[project] = end
        if len(self._ends) > _ENDS_KEPT:
            del self._ends[next(iter(self._ends))]

    @asynccontextmanager
    async def _read(self) -> AsyncIterator[DeadLetterClient]:
        if self._asking.locked():
            raise EvenlaneError(f"{_AT_ONCE} requests are already reading dead letters: try again in a second")
        async with self._asking, self._open() as dead_letters:
            yield dead_letters

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[DeadLetterClient]:
        with connections.translate_errors():
            async with opened(self._settings) as dead_letters:
                yield dead_letters


def _explain(project: str, error: BaseException) -> str:
    """Return one sentence. A defect is logged with all details."""
    if isinstance(error, EvenlaneError):
        _log.warning("dead letters could not be replayed", project=project, reason=str(error))
        return str(error)
    _log.error("dead letters could not be replayed", project=project, exc_info=error)
    return "a defect of the node ended it: see the node's log"


def _outcome(project: str, done: ReplayResult) -> dict[str, Any]:
    return {
        "project": project,
        "running": False,
        "replayed": done.replayed,
        "failed": len(done.failed),
        "failures": [each._asdict() for each in done.failed[:_NAMED]],
        "stopped": done.stopped,
    }


def _check(project: str) -> None:
    """Raise InvalidName for an invalid project."""
    if project != UNROUTABLE_PROJECT:
        check_project(project)

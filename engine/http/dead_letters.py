"""Dead letters by HTTP: lists them, groups them by error, shows, replays and drops them.

Each request opens connections of its own, so that people's requests don't delay messages.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.admin.dead_letters.by_error import ALL
from evenlane.engine.admin.dead_letters.client import opened
from evenlane.engine.base.names import check_project
from evenlane.engine.cluster import connections
from evenlane.engine.core.message.copies import UNROUTABLE_PROJECT
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.http.dead_letter_jobs import DeadLetterJobs, explain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.admin.dead_letters.by_error import ErrorTally, Selection
    from evenlane.engine.admin.dead_letters.client import DeadLetterClient
    from evenlane.engine.admin.replays.replay import ReplayProgress, ReplayResult
    from evenlane.engine.base.config.settings import Settings

_log = structlog.get_logger(__name__)

MOST_LISTED = 1_000
_AT_ONCE = 8  # concurrent lists and reads
_PREVIEW = 4_096  # characters of a body
_SOON_S = 3.0  # a longer replay or drop continues in the background
_NAMED = 20  # failures in an answer
_GROUPS = 100  # in an answer
_TALLIES = 8  # projects whose errors are remembered until their dead letters change


class DeadLetterService:
    """Serves dead letters. `close` ends running replays and drops: what they haven't done yet stays a dead letter.

    Invariant: `_tallies` has the errors of the dead letters that existed when the project and the stream had these
    numbers, the latest ones that were asked for.
    """

    def __init__(self, settings: Settings, *, soon_s: float = _SOON_S) -> None:
        self._settings = settings
        self._asking = asyncio.Semaphore(_AT_ONCE)
        self._grouping = asyncio.Lock()  # it keeps a thread busy
        self._jobs = DeadLetterJobs(soon_s)
        self._tallies: dict[str, tuple[tuple[int, int], ErrorTally]] = {}

    async def list(self, project: str, limit: int, error: str | None = None) -> dict[str, Any]:
        """List the oldest dead letters, as `evenlane dlq list --json`, with the progress of a running replay or drop
        and the results of the last ones. `error` is the key of an error; other dead letters are left out then.

        Raises EvenlaneError.
        """
        _check(project)
        async with self._read() as dead_letters:
            total = await dead_letters.count(project)
            found = await dead_letters.oldest(project, limit, error) if total else []
            kept = await dead_letters.kept()
        documents = [dead_letter.document(body=False) for dead_letter in found]
        return {
            "project": project,
            "total": total,
            "keep_seconds": kept or None,
            "letters": documents,
            **self._jobs.describe(project),
        }

    async def errors(self, project: str) -> dict[str, Any]:
        """Group the dead letters by error, the largest group first; `grouped` is the number of those that were read,
        the oldest ones. Raises EvenlaneError.
        """
        _check(project)
        async with self._read() as dead_letters:
            total, last = await dead_letters.count(project), await dead_letters.last()
            kept = await dead_letters.kept()
            tally = await self._tally(project, (total, last), dead_letters)
        groups = tally.groups()
        return {
            "project": project,
            "total": total,
            "grouped": tally.counted,
            "last_seq": last,
            "keep_seconds": kept or None,
            "errors": [group.document() for group in groups[:_GROUPS]],
            "more_errors": max(0, len(groups) - _GROUPS),
            **self._jobs.describe(project),
        }

    async def _tally(self, project: str, numbers: tuple[int, int], dead_letters: DeadLetterClient) -> ErrorTally:
        async with self._grouping:
            known, tally = self._tallies.pop(project, (None, None))
            if tally is None or known != numbers:
                tally = await dead_letters.by_error(project)
            self._tallies[project] = numbers, tally
            if len(self._tallies) > _TALLIES:
                del self._tallies[next(iter(self._tallies))]
            return tally

    async def show(self, project: str, sequence: int) -> dict[str, Any]:
        """Show one dead letter with the first part of its body. Raises EvenlaneError."""
        _check(project)
        async with self._read() as dead_letters:
            document = (await dead_letters.get(project, sequence)).document(body=True)
        for kind in ("body", "body_base64"):
            if kind in document:
                document |= {kind: document[kind][:_PREVIEW], "cut": len(document[kind]) > _PREVIEW}
        return document

    async def replay(
        self, project: str, sequence: int | None, selection: Selection = ALL, by: str = ""
    ) -> dict[str, Any]:
        """Replay one dead letter, or all present ones of the selection, for the person or token `by`. Returns the
        result, or the progress if the replay takes long. Raises EvenlaneError.
        """
        _check(project)
        if project == UNROUTABLE_PROJECT:
            raise ConfigError("_stray holds messages that no queue had, so there is none to replay them into")

        def on_error(error: BaseException, progress: dict[str, Any]) -> dict[str, Any]:
            return _replayed(project, progress.get("replayed", 0), explain(project, "replay", error))

        return await self._jobs.run(project, "replay", lambda: self._replay(project, sequence, selection, by), on_error)

    async def drop(
        self, project: str, sequence: int | None, selection: Selection = ALL, by: str = ""
    ) -> dict[str, Any]:
        """Drop dead letters like `replay`."""
        _check(project)

        def on_error(error: BaseException, progress: dict[str, Any]) -> dict[str, Any]:
            return _dropped(project, progress.get("dropped", 0), explain(project, "drop", error))

        return await self._jobs.run(project, "drop", lambda: self._drop(project, sequence, selection, by), on_error)

    async def close(self) -> None:
        await self._jobs.close()

    async def _replay(self, project: str, sequence: int | None, selection: Selection, by: str) -> dict[str, Any]:
        def on_progress(progress: ReplayProgress) -> None:
            self._jobs.note_progress(project, progress._asdict())

        async with self._open() as dead_letters:
            done = await dead_letters.replay(project, sequence, selection=selection, on_progress=on_progress)
        _log.info(
            "dead letters were replayed by HTTP",
            project=project, by=by, replayed=done.replayed, failed=len(done.failed), stopped=done.stopped,
        )  # fmt: skip
        return _replayed(project, done.replayed, done.stopped, done)

    async def _drop(self, project: str, sequence: int | None, selection: Selection, by: str) -> dict[str, Any]:
        def on_progress(dropped: int, total: int) -> None:
            self._jobs.note_progress(project, {"dropped": dropped, "total": total})

        async with self._open() as dead_letters:
            dropped = await dead_letters.drop(project, sequence, selection=selection, on_progress=on_progress)
        _log.info("dead letters were dropped by HTTP", project=project, by=by, dropped=dropped)
        return _dropped(project, dropped)

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


def _replayed(project: str, replayed: int, stopped: str = "", done: ReplayResult | None = None) -> dict[str, Any]:
    failed = done.failed if done is not None else []
    return {
        "project": project,
        "running": False,
        "replayed": replayed,
        "failed": len(failed),
        "failures": [each._asdict() for each in failed[:_NAMED]],
        "stopped": stopped,
    }


def _dropped(project: str, dropped: int, stopped: str = "") -> dict[str, Any]:
    return {"project": project, "running": False, "dropped": dropped, "stopped": stopped}


def _check(project: str) -> None:
    """Raise InvalidName for an invalid project."""
    if project != UNROUTABLE_PROJECT:
        check_project(project)

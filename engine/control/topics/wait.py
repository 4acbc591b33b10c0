"""Waits for the leader to accept written specs."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.control.topics.status import try_decode
from evenlane.ring.coordination.ports import Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from evenlane.ring.coordination.ports import Coordination, KeyValue, Watch

WAIT_S = 2.0  # without any progress


async def wait_until_accepted(
    coordination: Coordination,
    env: str,
    written: Mapping[str, int],
    on_progress: Callable[[int], None] = lambda _waiting: None,
    *,
    timeout_s: float = WAIT_S,
) -> set[str]:
    """Wait until all of these specs are accepted; return the projects that aren't.

    `written` maps a project to the revision of its spec, 0 if it was deleted. Gives up when none was accepted for
    `timeout_s` seconds. `on_progress` is called with the number still waited for. Raises CoordinationError.
    """
    waiting = dict(written)
    if not waiting:
        return set()
    # A single project is watched alone, as a listing of thousands takes longer.
    [project] = waiting if len(waiting) == 1 else [""]
    watch = coordination.watch(names.key(env, "accepted", project))
    try:
        with contextlib.suppress(TimeoutError):
            while waiting:
                async with asyncio.timeout(timeout_s):
                    await _some(watch, waiting, names.key(env, "accepted", ""))
                on_progress(len(waiting))
    finally:
        await watch.aclose()
    return set(waiting)


async def _some(watch: Watch, waiting: dict[str, int], prefix: str) -> None:
    """Return when at least one more is accepted."""
    before = len(waiting)
    async for update in watch:
        if isinstance(update, Listing):
            found = {item.key.removeprefix(prefix): item for item in update.items}
            looked_at = {project: found.get(project) for project in waiting}
        else:
            looked_at = {update.item.key.removeprefix(prefix): update.item if update.kind == "put" else None}
        for project, item in looked_at.items():
            if project in waiting and _is_done(item, waiting[project]):
                del waiting[project]
        if len(waiting) < before:
            return


def _is_done(item: KeyValue | None, revision: int) -> bool:
    found = try_decode(item)
    if not revision:
        return item is None or (found is not None and found.deleted)
    return found is not None and found.revision >= revision

"""Pauses topics whose handler has asked for it (`Pause`)."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)

_REASON = "endpoint"
_SHORT_S = 1.0  # pauses up to this long keep payloads in memory


class ProjectSwitch(Protocol):
    """Withholds projects. Implemented by `WithheldProjects`."""

    def withhold(self, project: str, reason: str, on: bool, *, for_long: bool = True) -> None:
        """Withhold a project for this reason, or stop withholding it for this reason."""


class TopicPauses:
    """Withholds paused projects, and releases them by its own timers.

    Invariant: `_until`, `_reasons` and `_timers` have the same keys, the paused projects. `_longest` spares repeated
    work when a handler keeps extending a pause: a pause of up to this length (s) changes nothing but its end.
    """

    def __init__(self, withheld: ProjectSwitch) -> None:
        self._withheld = withheld
        self._until: dict[str, float] = {}
        self._reasons: dict[str, str] = {}
        self._longest: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def reason(self, project: str) -> str | None:
        """The reason why a project is paused, and for how long; None if it isn't."""
        if project not in self._until:
            return None
        left = max(0.0, self._until[project] - asyncio.get_running_loop().time())
        return f"it is paused for {left:.3g} s more: {self._reasons[project]}"

    def begin(self, project: str, after_s: float, reason: str) -> bool:
        """Pause a project, unless it is paused for longer already. True if it wasn't paused before."""
        loop = asyncio.get_running_loop()
        until = loop.time() + after_s
        known = self._until.get(project)
        if known is not None and known >= until:
            return False
        if known is not None:
            self._timers[project].cancel()
        if after_s > self._longest.get(project, 0.0):
            self._longest[project] = 2 * after_s
            self._withheld.withhold(project, _REASON, True, for_long=after_s > _SHORT_S)
        self._until[project], self._reasons[project] = until, reason
        self._timers[project] = loop.call_at(until, self._end, project)
        return known is None

    def end(self, project: str) -> None:
        """End the pause of a project, if there is one."""
        if (timer := self._timers.get(project)) is not None:
            timer.cancel()
            self._end(project)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _end(self, project: str) -> None:
        _log.debug("a topic pauses no more", project=project)
        for known in (self._timers, self._until, self._reasons, self._longest):
            known.pop(project, None)
        self._withheld.withhold(project, _REASON, False)

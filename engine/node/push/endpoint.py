"""What the pusher keeps of each topic: its address, and whether that is to be left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarl import URL

from evenlane.engine.node.push.breaker import Breaker
from evenlane.engine.node.push.response import confidential_of, where

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 100_000


class Endpoint:
    """One topic's. Two topics with the same address are two endpoints: what goes wrong may lie in their settings, and
    neither is to wait for the other.
    """

    __slots__ = ("breaker", "confidential", "headers", "project", "settings", "told", "url", "where")

    def __init__(self, project: str, settings: Mapping[str, Any]) -> None:
        """`settings` as `evenlane.quota.topics.fields.push_settings` made them."""
        self.project, self.settings = project, settings
        self.url = URL(settings["url"], encoded=True)  # to the letter: some are signed
        self.where = where(settings["url"])
        self.headers: Mapping[str, str] = settings["headers"]
        self.confidential = confidential_of(settings["url"], self.headers.values())
        self.breaker = Breaker()
        self.told: set[str] = set()  # what was said in the log once


class Endpoints:
    """By project. Other settings make another endpoint: who has mended them wants to see it tried."""

    def __init__(self) -> None:
        self._of: dict[str, Endpoint] = {}

    def get(self, project: str, settings: Mapping[str, Any]) -> Endpoint:
        known = self._of.get(project)
        if known is not None and (known.settings is settings or known.settings == settings):
            return known
        made = self._of[project] = Endpoint(project, settings)
        if len(self._of) > _MOST:
            del self._of[next(iter(self._of))]
        return made

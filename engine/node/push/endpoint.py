"""The pusher's state of each topic: its endpoint, and whether that is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yarl import URL

from evenlane.engine.node.push.breaker import Breaker
from evenlane.engine.node.push.response import confidential_of, where

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST = 100_000


class Endpoint:
    """The endpoint of one topic. Two topics with the same address are two endpoints: a failure may lie in their
    settings, and neither should wait for the other.
    """

    __slots__ = ("breaker", "confidential", "headers", "logged", "project", "settings", "url", "where")

    def __init__(self, project: str, settings: Mapping[str, Any]) -> None:
        """`settings` as returned by `evenlane.quota.topics.fields.push_settings`."""
        self.project, self.settings = project, settings
        self.url = URL(settings["url"], encoded=True)  # unchanged: some URLs are signed
        self.where = where(settings["url"])
        self.headers: Mapping[str, str] = settings["headers"]
        self.confidential = confidential_of(settings["url"], self.headers.values())
        self.breaker = Breaker()
        self.logged: set[str] = set()  # warnings that were logged already


class Endpoints:
    """The endpoints by project. Changed settings make a new endpoint, so that a repaired one is tried at once."""

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

"""Decides which messages of the shared streams a subscription passes over: they are settled without a handler. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from evenlane.engine.base.project_patterns import matches
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import read_instant


@dataclass(frozen=True)
class SubscriptionFilter:
    """The messages that a subscription gets of the shared streams; by default all of them.

    `since` (unix ns): of the delayed messages it gets those that are due from then on. `projects` are patterns of the
    projects whose messages it gets; empty: all. `reset` (unix ns) is when the subscription was last reset, 0: never.
    Since then it gets all messages again that were stored at `since` or later.
    """

    since: int = 0
    projects: tuple[str, ...] = ()
    reset: int = 0

    def takes_project(self, project: str) -> bool:
        return not self.projects or any(matches(pattern, project) for pattern in self.projects)

    def takes_delayed(self, headers: bytes, at: int) -> bool:
        """Whether it gets a message of a delay stream, which arrived at `at` (unix ns). One that was due before it
        arrived is due at its arrival.
        """
        return max(read_instant(headers, h.DUE, at), at) >= self.since and not is_of_another(headers)

    def takes_retry(self, at: int) -> bool:
        """Whether it gets a message of its own stream of retries, which arrived at `at` (unix ns). A reset to new
        messages drops those that waited.
        """
        return at >= self.reset or self.since < self.reset


ALL_MESSAGES = SubscriptionFilter()


def is_of_another(headers: bytes) -> bool:
    """Whether a message in a shared stream is a retry or replay, and so for the unnamed subscription alone: those of
    all others are in streams of their own.
    """
    return h.value(headers, h.ORIGIN) is not None

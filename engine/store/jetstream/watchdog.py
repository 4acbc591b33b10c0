"""Notices what the servers no longer answer: feeds that are silent, puts and requests whose time is over."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.feed import JetStreamFeed
    from evenlane.engine.store.jetstream.publishing.publisher import Publisher

_ANSWER_S = 6  # an acknowledgement that takes longer won't arrive: its server or its leader has changed


class Watchdog:
    """Looks once a second, and waits for nothing else: silence of the servers must not delay it."""

    def __init__(
        self,
        connection: Connection,
        publisher: Publisher,
        feeds: Collection[JetStreamFeed],
        is_connected: Callable[[], bool],
    ) -> None:
        self._connection, self._publisher, self._feeds, self._is_connected = connection, publisher, feeds, is_connected

    async def run(self) -> None:
        marks = deque([(self._connection.asked, self._publisher.puts)], _ANSWER_S)
        while True:
            before = monotonic()
            await asyncio.sleep(1)
            if len(marks) == _ANSWER_S:
                asked, puts = marks[0]
                self._connection.give_up(asked)
                self._publisher.give_up(puts)
            marks.append((self._connection.asked, self._publisher.puts))
            now = monotonic()
            if self._is_connected():
                for feed in list(self._feeds):
                    feed.check(now, late=max(0.0, now - before - 1))

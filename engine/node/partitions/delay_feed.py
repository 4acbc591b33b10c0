"""Feeds a delay stream, or a named subscription's stream of retries: the hours up to one hour ahead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.names import due_hour

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Feed, Store
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.partitions.due_release import DueReleaser
    from evenlane.engine.node.partitions.queue_resolver import QueueResolver
    from evenlane.engine.node.settle.stream_verifier import StreamVerifier

_HOUR = 3_600_000_000_000
_NEAR = 300_000_000_000  # ns; how long an hour is fed after its end
_SOON = 300_000_000_000  # ns; an hour that begins within this time is fed even right after a takeover
_APART = 4  # feeds of single hours; older hours share one


class DelayFeed:
    """Feeds a delay stream: one feed per near hour, and one for all hours long past.

    Invariant: `_hours` has the hours of each open feed; no hour is in two feeds.
    """

    def __init__(
        self, store: Store, lane: FedLane, verifier: StreamVerifier, due: DueReleaser, resolver: QueueResolver
    ) -> None:
        self._store, self._lane, self._verifier, self._due = store, lane, verifier, due
        self._resolver, self._is_filtered = resolver, resolver.filters(lane) or lane.id.kind == "again"
        self._hours: dict[Feed, set[str]] = {}
        self._turning = asyncio.Lock()  # by the clock and after a replacement

    @property
    def feeds(self) -> list[Feed]:
        return list(self._hours)

    async def begin(self) -> None:
        """Open feeds for due messages after a takeover. The next hour is left to the next `turn`, unless it begins
        soon. Raises Lost, Refused.
        """
        await self._turn_to(_SOON)

    async def turn(self) -> None:
        """Open feeds for hours that have come near since the last call, and close those of hours long empty. Raises
        Lost, Refused.
        """
        await self._turn_to(_HOUR)

    async def _turn_to(self, ahead: int) -> None:
        async with self._turning:
            await self._turn(self._store.now(), ahead)

    async def _turn(self, now: int, ahead: int) -> None:
        """Open one feed per hour: a filter with several hours costs nats-server a walk through the stream's subjects
        for each message (624 us at 6,000 subjects, instead of 10).
        """
        hour = now // _HOUR
        held = {subject.rpartition(".")[2] for subject in await self._store.counts(self._lane.id)}
        self._lane.hours.retain(
            {*map(_hour_of, held), *(_hour_of(text) for hours in self._hours.values() for text in hours)}
        )
        for feed, hours in list(self._hours.items()):
            if not hours & held and all(_hour_of(text) < hour - 1 for text in hours):
                del self._hours[feed]
                await feed.close()
        fresh = sorted(_hours_to_feed(held, now, ahead).difference(*self._hours.values()), key=_hour_of, reverse=True)
        apart, together = fresh[:_APART], fresh[_APART:]
        for some in [*([text] for text in apart), *([together] if together else [])]:
            start = self._lane.hours.find_start(map(due_hour, some))
            feed = self._store.feed(self._lane.id, start, self._take_in, self._resume, hours=some)
            self._hours[feed] = {*some}

    async def begin_again(self) -> None:
        """Feed a stream that was replaced. Raises Lost, Refused."""
        await self.turn()

    async def drop(self) -> None:
        """Close the feeds, to be replaced by others."""
        async with self._turning:
            feeds = self.feeds
            self._hours.clear()
        await asyncio.gather(*(feed.close() for feed in feeds))

    def _take_in(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        if self._is_filtered and not self._resolver.takes_delayed(self._lane, headers, at):
            self._lane.note_later(subject, sequence, at)
            self._lane.held.pop(sequence, None)  # it was started before a reset, and isn't handled again
            if not self._lane.must_keep_out(subject, sequence):
                self._resolver.pass_over(self._lane, sequence)
            return
        self._lane.take_in_later(subject, sequence, at, headers, body)
        self._due.on_delayed(self._lane.queues.get(subject))

    async def _resume(self, last: int) -> int:
        generation = self._lane.generation
        self._lane.verified = -1
        await self._verifier.verify(self._lane)
        return last + 1 if self._lane.generation == generation else 1


def _hour_of(text: str) -> int:
    return due_hour(text) or 0


def _hours_to_feed(held: set[str], now: int, ahead: int) -> set[str]:
    """The hours to feed: those that the stream holds and those near `now` (unix ns), up to the hour that begins within
    `ahead` ns.

    Tokens that aren't hours are fed, too, so that their messages are dead-lettered. The previous hour is fed for a
    while longer: a copy may be put after its due time, when the hour has already turned.
    """
    last = (now + ahead) // _HOUR
    return {
        *(text for text in held if _hour_of(text) <= last),
        *(str(hour) for hour in ((now - _NEAR) // _HOUR, now // _HOUR, last)),
    }

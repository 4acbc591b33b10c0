"""The store as the nodes of a simulation reach it. Its server reports everything that it carries out."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from evenlane.engine.base import names
from evenlane.engine.core.ports import LogMoved, Lost, Refused
from evenlane.engine.errors import Unreachable
from evenlane.engine.store.memory.feed import MemoryFeed
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.store.memory.stream import MemoryStream
    from tests.simulation.loop import SimLoop
    from tests.simulation.network import Link

_NO_ANSWER_S = 6.0  # after which an answer counts as lost


class Witness(Protocol):
    """Receives everything that the server has carried out."""

    def stored(self, stream: MemoryStream, receipt: Receipt, subject: str, headers: bytes) -> None: ...

    def logged(self, subject: str, record: bytes) -> None: ...

    def removing(self, stream: MemoryStream, sequences: list[int]) -> None: ...


class SimServer(MemoryServer):
    """The one server, by the simulation's clock. Its unix time is `epoch_ns` more than that clock."""

    def __init__(self, loop: SimLoop, epoch_ns: int, witness: Witness) -> None:
        super().__init__(clock=lambda: epoch_ns + loop.now + self.ahead_ns)
        self.ahead_ns = 0  # the sum of its clock's jumps
        self.witness = witness
        self.breaks: dict[str, int] = {}  # stream -> times that it was replaced or rolled back

    def store(self, subject: str, headers: bytes, body: bytes) -> Receipt:
        receipt = super().store(subject, headers, body)
        self.witness.stored(self.stream(receipt.stream), receipt, subject, headers)
        return receipt

    def append_log(self, subject: str, record: bytes, after: int, checkpoint: bool) -> int:
        position = super().append_log(subject, record, after, checkpoint)
        self.witness.logged(subject, record)
        return position

    def lose_stream(self, lane: LaneId) -> None:
        self._break(lane)
        self.replace("online", lane)

    def lose_end(self, lane: LaneId, above: int) -> None:
        self._break(lane)
        self.roll_back("online", lane, above)

    def _break(self, lane: LaneId) -> None:
        name = names.stream("online", lane)
        self.breaks[name] = self.breaks.get(name, 0) + 1

    def purge(self, stream: MemoryStream, below: int) -> None:
        self.witness.removing(stream, [s for s in stream.messages if s < below])
        stream.purge(below)

    def delete(self, stream: MemoryStream, sequence: int) -> None:
        if sequence in stream.messages:
            self.witness.removing(stream, [sequence])
            del stream.messages[sequence]


class SimFeed(MemoryFeed):
    """A feed that delivers with a delay, and nothing while the link is cut."""

    _store: SimStore

    def wake(self) -> None:
        """Look for messages: the link is up again."""
        self._wake.set()

    def leave(self, stream: MemoryStream) -> None:
        """Listen to the stream no more."""
        stream.listeners.pop(self._wake.set, None)

    async def _follow(self, stream: MemoryStream) -> bool:
        while not self._broken:
            self._wake.clear()
            if self._store.reaches and self._give(stream):
                await asyncio.sleep(0)
            elif self._until is not None and self._store.reaches:
                return True
            else:
                await self._wake.wait()
                await asyncio.sleep(self._store.lag())
        return False


class SimStore(MemoryStore):
    """One node's connection."""

    _feed_type = SimFeed

    def __init__(self, loop: SimLoop, server: SimServer, env: str, link: Link) -> None:
        super().__init__(server, env)
        self._loop, self._link = loop, link
        self._sim: SimServer = server
        self._arrivals: dict[str, int] = {}  # stream -> when the last publish arrives: they keep their order
        self._number = 0  # of the connection: requests on an earlier one are lost with it

    async def open(self) -> None:
        await asyncio.sleep(self._link.delay())
        if not self._link.up:
            raise Unreachable("the simulated server does not answer")
        await super().open()

    # ---- faults, called in the node's own context

    def lose(self) -> None:
        """The client notices that its connection is gone."""
        if not self._link.up and self in self.server.stores:
            self._number += 1
            self.cut()

    def again(self) -> None:
        if self._link.up and self in self.server.stores:
            self.join()
            for feed in self._feeds:
                feed.wake()

    def discard(self) -> None:
        """The node is dead: it receives nothing any more."""
        if self in self.server.stores:
            self.server.stores.remove(self)
        for feed, lane in self._feeds.items():
            feed.leave(self.lane(lane))

    @property
    def reaches(self) -> bool:
        return self._link.up

    # ---- the port

    def put(self, subject: str, headers: bytes, body: bytes) -> asyncio.Future[Receipt]:
        return self._publish(subject, lambda: self._sim.store(subject, headers, body))

    def append_log(self, lane: LaneId, record: bytes, after: int, *, checkpoint: bool = False) -> asyncio.Future[int]:
        subject = names.settled_subject(self._cluster, lane)
        return self._publish(subject, lambda: self._sim.append_log(subject, record, after, checkpoint))

    async def purge(self, lane: LaneId, below: int, may: Any = lambda: True) -> None:
        if not may():
            raise Lost("it may not be purged any more")
        await self._request(lambda: self._sim.purge(self.lane(lane), below), self.lane_line(lane))

    async def delete(self, lane: LaneId, sequence: int) -> None:
        await self._request(lambda: self._sim.delete(self.lane(lane), sequence), self.lane_line(lane))

    def expect_feeds(self, *, more: bool) -> None:
        """Do nothing: memory is fast."""

    def lag(self) -> float:
        return self._link.delay()

    def lane_line(self, lane: LaneId) -> Callable[[], bool]:
        """Return a check that the stream is still the same: a request to its previous leader is lost."""
        key = names.stream(self._cluster, lane)
        breaks = self._sim.breaks.get(key, 0)
        return lambda: self._sim.breaks.get(key, 0) == breaks

    # ---- requests on their way

    def _publish(self, subject: str, carry_out: Callable[[], Any]) -> asyncio.Future[Any]:
        stream = subject.split(".", 1)[0] + subject.rpartition(".")[2]
        at = max(self._loop.now + int(self._link.delay() * SECOND), self._arrivals.get(stream, 0))
        self._arrivals[stream] = at
        return self._send(carry_out, at, held=True)

    async def _read(self, carry_out: Callable[[], Any]) -> Any:
        return await self._send(carry_out, self._loop.now + int(self._link.delay() * SECOND))

    async def _request(self, carry_out: Callable[[], Any], holds: Callable[[], bool]) -> Any:
        def carry_out_there() -> Any:
            if not holds():
                raise Lost("the leader has changed meanwhile")
            return carry_out()

        return await self._read(carry_out_there)

    def _send(self, carry_out: Callable[[], Any], at: int, *, held: bool = False) -> asyncio.Future[Any]:
        future = self.answers.begin()
        if self.is_connected:
            _Request(self, future, carry_out, held=held).leave(at)
        else:
            self.answers.refuse(future, Lost("there is no connection at the moment"))
        return future


class _Request:
    """One request on its way. The world carries it out, even if the node dies meanwhile."""

    def __init__(
        self, store: SimStore, future: asyncio.Future[Any], carry_out: Callable[[], Any], *, held: bool
    ) -> None:
        self._store, self._future, self._carry_out, self._held = store, future, carry_out, held
        self._loop, self._link, self._number = store._loop, store._link, store._number
        self._fails = self._link.fails()
        self._before = self._fails and self._link.either()

    def _later(self, seconds: float, what: Callable[..., None], *args: Any) -> None:
        self._loop.call_later(seconds, what, *args, context=self._loop.world.context)

    def leave(self, arrives_at: int) -> None:
        self._loop.call_at(arrives_at / SECOND, self._arrive, context=self._loop.world.context)

    def _arrive(self) -> None:
        if self._before or (not self._link.up and self._link.either()):
            self._lose()
            return
        try:
            answer = partial(self._store.answers.confirm, self._future, self._carry_out())
        except (Refused, Lost, LogMoved) as error:
            answer = partial(self._store.answers.refuse, self._future, error)
        if self._fails:
            self._lose()
        else:
            self._later(self._link.delay(), self._return, answer)

    def _return(self, answer: Callable[[], None]) -> None:
        delay = self._store._sim.ack_delay_s if self._held else 0
        if not self._link.up or self._number != self._store._number:
            self._lose()
        elif math.isinf(delay):
            self._store.answers.withhold(answer)
            self._lose()
        elif delay:
            self._later(delay, answer)
        else:
            answer()

    def _lose(self) -> None:
        self._later(_NO_ANSWER_S, self._store.answers.refuse, self._future, Lost("no answer came"))

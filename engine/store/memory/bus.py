"""Request and response in memory: a message sent on a `MemoryBus` reaches all listeners of the same broker."""

from __future__ import annotations

import asyncio
from itertools import count
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import INBOX, NO_RESPONDERS

if TYPE_CHECKING:
    from collections.abc import Callable

    OnMessage = Callable[[bytes, bytes, bytes, bytes], None]


class _Listener(NamedTuple):
    subject: tuple[str, ...]
    on_message: OnMessage

    def is_matched_by(self, words: list[str]) -> bool:
        return len(words) == len(self.subject) and all(
            own in ("*", word) for own, word in zip(self.subject, words, strict=True)
        )


class MemoryBroker:
    """Shared by all buses of one process; belongs to one event loop."""

    def __init__(self) -> None:
        self._listeners: dict[int, _Listener] = {}
        self._ids = count(1)

    def listen(self, subject: str, on_message: OnMessage) -> int:
        number = next(self._ids)
        self._listeners[number] = _Listener(tuple(subject.split(".")), on_message)
        return number

    def unlisten(self, number: int) -> None:
        self._listeners.pop(number, None)

    def send(self, subject: str, body: bytes, headers: bytes, reply: str) -> None:
        """Deliver in the next turn of the loop, in sending order, to the listeners of that moment."""
        asyncio.get_running_loop().call_soon(self._deliver, subject, body, headers, reply)

    def _deliver(self, subject: str, body: bytes, headers: bytes, reply: str) -> None:
        words = subject.split(".")
        takers = [(number, each) for number, each in self._listeners.items() if each.is_matched_by(words)]
        if not takers and reply:
            self._deliver(reply, b"", NO_RESPONDERS + b"\r\n\r\n", "")
        for number, each in takers:
            if number in self._listeners:  # an earlier listener may have removed it
                each.on_message(subject.encode(), reply.encode(), headers, body)


class MemoryBus:
    """One connection: see `evenlane.engine.core.request_bus.RequestBus`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._own: set[int] | None = None  # listeners, while it is open

    async def open(self) -> None:
        if self._own is None:
            self._own = set()

    def listen(self, subject: str, on_message: OnMessage) -> int:
        number = self._broker.listen(subject, on_message)
        self._opened().add(number)
        return number

    def unlisten(self, sid: int) -> None:
        if self._own is not None:
            self._own.discard(sid)
        self._broker.unlisten(sid)

    def new_inbox(self) -> str:
        return f"{INBOX}{token_hex(11)}"

    def send(self, subject: str, body: bytes, headers: bytes = b"", reply: str = "") -> None:
        self._opened()
        self._broker.send(subject, body, headers, reply)

    async def close(self) -> None:
        for number in self._own or ():
            self._broker.unlisten(number)
        self._own = None

    def _opened(self) -> set[int]:
        if self._own is None:
            raise Disconnected("the connection is not open")
        return self._own

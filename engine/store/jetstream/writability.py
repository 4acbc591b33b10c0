"""Finds out whether streams can be written, from refused puts and by asking the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.core.ports import Disconnected, Lost
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.store.jetstream.api import write_errors
from evenlane.engine.store.jetstream.client.replies import ApiError, Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.core.ports import Unwritable
    from evenlane.engine.store.jetstream.api.values import PubAck
    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.client.replies import Reply

_ANSWER_S = 1.5
_NO_MESSAGE = msgspec.json.encode({"seq": 1 << 62, "no_erase": True})
_ROOM = 4096  # bytes that the account must have room for at least
_BELIEVED_S = 30.0  # how long a refusal counts if no further message is put
_AT_ONCE_IN_A_CLUSTER = 16


class Writability:
    """Asks each stream to delete a message that doesn't exist: a stream that can't be written answers with the reason,
    and nothing changes. In a replicated stream this is an entry in its raft log, so while `is_replicated`, only 16
    streams are asked at a time, in turn, and `urgent` every time.

    Invariant: `_refused` has streams that refused a put, with the time (s) until which the refusal counts; `_known` has
    streams that can't be written, according to their last answer.
    """

    def __init__(
        self,
        connection: Connection,
        is_replicated: Callable[[], bool],
        urgent: str,
        now: Callable[[], float] = monotonic,
        answer_s: float = _ANSWER_S,
    ) -> None:
        self._answer_s = answer_s
        self._connection, self._is_replicated, self._urgent, self._now = connection, is_replicated, urgent, now
        self._refused: dict[str, tuple[Unwritable, float]] = {}
        self._known: dict[str, Unwritable] = {}
        self._asked: defaultdict[str, int] = defaultdict(int)  # stream -> round, if replicated
        self._round = 0
        self._is_denied = False  # this client may ask nothing: it knows the refusals of its puts only

    def note(self, ack: PubAck) -> None:
        """Note a stream's answer to a put."""
        if ack.error is None:
            if self._refused:
                self._refused.pop(ack.stream, None)
        elif (refused := write_errors.of_refusal(ack)) is not None:
            self._refused[ack.stream] = refused, self._now() + _BELIEVED_S

    async def find_unwritable(self, streams: Sequence[str]) -> dict[str, Unwritable]:
        """The streams that can't be written. Raises Lost if no server answers."""
        account = await self._account()
        if account is not None:
            return dict.fromkeys(streams, account)
        if not self._is_denied:
            await self._ask(self._turn(streams))
        now = self._now()
        self._refused = {each: (why, until) for each, (why, until) in self._refused.items() if now < until}
        found = {stream: self._known[stream] for stream in streams if stream in self._known}
        return {stream: why for stream, (why, _) in self._refused.items() if stream in streams} | found

    async def _account(self) -> Unwritable | None:
        try:
            info = await self._connection.api("INFO", timeout=self._answer_s)
            self._is_denied = False
            return write_errors.of_account(info, _ROOM)
        except (Disconnected, TimeoutError) as error:
            raise Lost(str(error) or "NATS did not answer in time") from error
        except Denied:
            self._is_denied = True
            return None
        except ApiError as error:
            return write_errors.of_deletion(error.err_code, str(error))

    def _turn(self, streams: Sequence[str]) -> Sequence[str]:
        """The streams to ask now: all, unless they are replicated. Of replicated streams, the urgent one, those known
        to be unwritable, and those asked longest ago.
        """
        if not self._is_replicated():
            return streams
        always = [each for each in streams if each in self._known or each == self._urgent]
        others = sorted(set(streams).difference(always), key=self._asked.__getitem__)
        turn = [*always, *others[:_AT_ONCE_IN_A_CLUSTER]]
        self._round += 1
        self._asked.update(dict.fromkeys(turn, self._round))
        return turn

    async def _ask(self, streams: Sequence[str]) -> None:
        """Ask these streams. If none of them answers, the findings stay: a client without the permission to delete gets
        no answer either.
        """
        found = await self._answers(streams)
        for stream in streams:
            if stream not in found:
                if found:
                    self._known.setdefault(stream, write_errors.SILENT)
            elif (unwritable := found[stream]) is not None:
                self._known[stream] = unwritable
            else:
                self._known.pop(stream, None)

    async def _answers(self, streams: Sequence[str]) -> dict[str, Unwritable | None]:
        """The best answer of each stream. Several servers may answer: one whose own replica is broken reports a missing
        leader even if the others are fine.
        """
        found: dict[str, Unwritable | None] = {}

        def is_last(stream: str, reply: Reply) -> bool:
            try:
                unwritable = _read(reply)
            except UNREADABLE:
                return False
            found[stream] = unwritable if stream not in found or unwritable is None else found[stream]
            return unwritable is None or (unwritable.restart and not self._is_replicated())

        questions: list[asyncio.Future[Reply]] = []
        with contextlib.suppress(Disconnected):
            for stream in streams:
                subject = f"$JS.API.STREAM.MSG.DELETE.{stream}"
                questions.append(self._connection.ask_several(subject, _NO_MESSAGE, partial(is_last, stream)))
        if questions:
            await asyncio.wait(questions, timeout=self._answer_s)
        for question in questions:
            question.cancel() or question.cancelled() or question.exception()
        return found


def _read(reply: Reply) -> Unwritable | None:
    error = _answer.decode(reply.body).error
    return write_errors.of_deletion(error.err_code, error.description) if error else None


class _Error(msgspec.Struct):
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    error: _Error | None = None


_answer = msgspec.json.Decoder(_Answer)

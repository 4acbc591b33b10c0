"""Pipelined requests on one connection to NATS, those to JetStream's API included."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from nats.nuid import NUID

from evenlane.engine.base.aio.futures import fail
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.jetstream.client.replies import TIME, Denied, Reply, decode_response, read_as
from evenlane.engine.store.jetstream.client.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.store.jetstream.client.options import NatsOptions

T = TypeVar("T")

_ROUND_TRIP_S = 5.0


class Connection(Transport):
    """A connection with requests. Those pending when the connection is lost fail with Disconnected.

    Invariant: `_asked` has the requests without a complete response, by token.
    """

    def __init__(self, options: NatsOptions, name: str) -> None:
        super().__init__(options, name)
        self._inbox = self.new_inbox()
        self._answers = f"{self._inbox}.".encode()  # prefix of reply subjects, before the token
        self._asked: dict[bytes, asyncio.Future[Reply] | Callable[[Reply | Disconnected], None]] = {}
        self._is_inbox_denied = False
        self._requested: dict[asyncio.Future[Reply], str] = {}  # subjects of `request`
        self._tokens = 0
        # called with the reason when no request sent so far will be answered, before the callbacks of `on_lost`
        self.on_unanswered: list[Callable[[str], None]] = []
        self.on_publish_denied.append(self._fail_denied)

    def new_inbox(self) -> str:
        """A subject that nothing else uses, for subscriptions to it or below it."""
        return self.inbox(NUID().next().decode())

    def inbox(self, name: str) -> str:
        """The reply subject of this name, which is unique, below the prefix of this user's inboxes."""
        return f"{self._options.inbox}.{name}"

    async def open(self) -> None:
        """Open as `Transport.open` does. Raises EvenlaneError, too, for a user that may not hear its replies."""
        await super().open()
        self.listen(f"{self._inbox}.*", self._on_reply)
        try:
            await self._check_inbox()
        except asyncio.CancelledError:
            await self._abandon()
            raise

    async def _check_inbox(self) -> None:
        """Wait for the server's refusal of the subscription, if there is one: otherwise each request would time out. A
        server that is silent for `_ROUND_TRIP_S` counts as one that doesn't refuse.
        """
        await self.round_trip(_ROUND_TRIP_S)
        if not self._is_inbox_denied:
            return
        options = self._options
        who = f"user {options.user}" if options.user else "this user"
        await self.close()
        raise EvenlaneError(
            f"NATS at {', '.join(options.servers)} refuses: {who} may not subscribe to its reply subjects,"
            f" {options.inbox}.>: set nats_inbox to those that its permissions allow, as `evenlane permissions` prints"
            " it"
        )

    def _on_denied(self, what: str, subject: str) -> None:
        if (what, subject) == ("subscription", f"{self._inbox}.*"):
            self._is_inbox_denied = True
        super()._on_denied(what, subject)

    def _fail_asked(self, why: str) -> None:
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            if isinstance(waiting, asyncio.Future):
                fail(waiting, Disconnected(why))
            else:
                waiting(Disconnected(why))
        for unanswered in self.on_unanswered:
            unanswered(why)

    def ask(self, subject: str, body: bytes, headers: bytes = b"") -> asyncio.Future[Reply]:
        """Send a request and return the future of its response. Cancelling the future drops the request."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        token = self.ask_then(subject, body, headers, future)
        future.add_done_callback(lambda _: self._asked.pop(token, None))
        return future

    def ask_several(self, subject: str, body: bytes, is_last: Callable[[Reply], bool]) -> asyncio.Future[Reply]:
        """Send a request that several servers may answer, and return the future of the last response: `is_last` is
        called with each. Cancelling the future drops the request.
        """
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply | Disconnected) -> None:
            if future.done():
                return
            if isinstance(reply, Disconnected):
                future.set_exception(reply)
            elif is_last(reply):
                future.set_result(reply)
            else:
                self._asked[token] = on_reply

        token = self.ask_then(subject, body, b"", on_reply)
        future.add_done_callback(lambda _: self._asked.pop(token, None))
        return future

    def ask_then(
        self,
        subject: str,
        body: bytes,
        headers: bytes,
        waiting: asyncio.Future[Reply] | Callable[[Reply | Disconnected], None],
    ) -> bytes:
        """Send a request, and return its token. A callable is called with the response inside the parser, which saves
        the cost of a future.
        """
        self._tokens += 1
        token = b"%x" % self._tokens
        self.outbox.publish(subject.encode(), body, headers, self._answers + token)
        self._asked[token] = waiting
        return token

    async def ask_all(self, subject: str, body: bytes, timeout: float = 10.0) -> list[Reply]:  # noqa: ASYNC109
        """Send a request, and collect the messages of the response up to the status that ends it, which is the last of
        the list. (A server before 2.11 doesn't support this, and sends one message.) Raises Disconnected or
        TimeoutError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        replies: list[Reply] = []

        def on_reply(reply: Reply | Disconnected) -> None:
            if done.done():
                return
            if isinstance(reply, Disconnected):
                done.set_exception(reply)
                return
            replies.append(reply)
            if (
                h.read_added(reply.headers, TIME) is not None
                and h.read_added(reply.headers, "Nats-Num-Pending") is not None
            ):
                self._asked[token] = on_reply  # not a status: more messages follow
            else:
                done.set_result(None)

        token = self.ask_then(subject, body, b"", on_reply)
        try:
            async with asyncio.timeout(timeout):
                await done
        finally:
            self._asked.pop(token, None)
        return replies

    @property
    def asked(self) -> int:
        """The number of requests so far: a mark for `give_up`."""
        return self._tokens

    def give_up(self, mark: int) -> None:
        """Fail requests of `ask_then` from before this mark that still have no response: none will come."""
        silent = []
        for token, waiting in self._asked.items():
            if int(token, 16) > mark:
                break
            if not isinstance(waiting, asyncio.Future):
                silent.append(token)
        for token in silent:
            waiting = self._asked.pop(token)
            if not isinstance(waiting, asyncio.Future):
                waiting(Disconnected("NATS did not answer in time"))

    def _on_reply(self, subject: bytes, _reply: bytes, headers: bytes, body: bytes) -> None:
        waiting = self._asked.pop(subject[subject.rindex(b".") + 1 :], None)
        if waiting is None:
            return
        if not isinstance(waiting, asyncio.Future):
            waiting(Reply(headers, body))
        elif not waiting.done():
            waiting.set_result(Reply(headers, body))

    async def request(self, subject: str, body: bytes, headers: bytes = b"", timeout: float = 5.0) -> Reply:  # noqa: ASYNC109
        """Send a request and wait for the response. Raises Denied, Disconnected or TimeoutError."""
        answer = self.ask(subject, body, headers)
        self._requested[answer] = subject
        try:
            # (Python 3.11's wait_for swallows a cancellation that comes together with the answer)
            async with asyncio.timeout(timeout):
                return await answer
        finally:
            del self._requested[answer]

    def _fail_denied(self, denied: str) -> None:
        for answer, subject in self._requested.items():
            if subject == denied:
                fail(answer, Denied(denied))

    async def api(self, verb: str, request: Any = None, timeout: float = 5.0) -> dict[str, Any]:  # noqa: ASYNC109
        """Call JetStream's API. Raises ApiError, Disconnected, TimeoutError."""
        payload = b"" if request is None else msgspec.json.encode(request)
        reply = await self.request(f"$JS.API.{verb}", payload, timeout=timeout)
        return decode_response(verb, reply)

    async def api_as(self, kind: type[T], verb: str, request: Any = None, timeout: float = 5.0) -> T:  # noqa: ASYNC109
        """`api`, with the response decoded (engine/store/jetstream/api/values.py)."""
        return read_as(kind, verb, await self.api(verb, request, timeout))

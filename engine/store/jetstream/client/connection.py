"""One connection to NATS: raw subscriptions, pipelined requests, and JetStream's API, on top of nats-py."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import nats.errors
import structlog
from nats.nuid import NUID

from evenlane.engine.base import tls
from evenlane.engine.base.aio.cancellation import cancellable
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.store.jetstream.client.guarded import GuardedClient, refused
from evenlane.engine.store.jetstream.client.protocol_parser import LeanParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

_log = structlog.get_logger(__name__)

T = TypeVar("T")

_FAREWELL_S = 0.5
_CLOSING_S = 2.0
TIME = "Nats-Time-Stamp"
"""A header that the server adds to each stored message that it returns, and to nothing else."""
NONE_OF_JETSTREAM = "an answer came that is none of JetStream's"


class Reply(NamedTuple):
    headers: bytes
    body: bytes


class _Refusal(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiError(EvenlaneError):
    """JetStream refused a request; `code` is HTTP-like, `err_code` JetStream's own number."""

    def __init__(self, verb: str, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream refused {verb}: {description} ({code}/{err_code})")
        self.code, self.err_code = code, err_code


def answered(verb: str, reply: Reply) -> dict[str, Any]:
    """The decoded response of JetStream's API. Raises ApiError, and Disconnected for a malformed response."""
    if reply.headers.startswith(b"NATS/1.0 503"):
        raise ApiError(verb, 503, 0, "JetStream is not available")
    try:
        answer = msgspec.json.decode(reply.body, type=dict[str, Any])
        refusal = msgspec.convert(answer.get("error"), _Refusal | None)
    except UNREADABLE:
        raise Disconnected(NONE_OF_JETSTREAM) from None
    if refusal is not None:
        raise ApiError(verb, refusal.code, refusal.err_code, refusal.description)
    return answer


def read_as(kind: type[T], verb: str, answer: dict[str, Any]) -> T:
    """The response of JetStream's API as a value. Raises Disconnected for one of another shape."""
    try:
        return msgspec.convert(answer, kind)
    except UNREADABLE as error:
        raise Disconnected(f"{NONE_OF_JETSTREAM}: {verb}: {error}") from None


@dataclass(frozen=True)
class NatsOptions:
    """Addresses and credentials of NATS. `connect_timeout` is in seconds."""

    servers: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    creds_file: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    connect_timeout: float = 5.0

    def login(self) -> dict[str, Any]:
        """The login options for nats-py. Raises ConfigError."""
        found: dict[str, Any] = {}
        if self.user:
            found |= {"user": self.user, "password": self.password or ""}
        if self.creds_file:
            from evenlane.engine.store.jetstream.client import creds  # noqa: PLC0415 - imports libsodium, which few need

            found["user_credentials"] = creds.checked(self.creds_file)
        if (context := tls.context("nats", self.ca, self.cert, self.key)) is not None:
            found["tls"] = context
        return found


class Connection:
    """A connection that reconnects for ever. Requests pending when the connection is lost fail with Disconnected. This
    class sends nothing twice, and buffers nothing while there is no server.

    Invariant: `_asked` has the requests without a complete response, by token.
    """

    def __init__(self, options: NatsOptions, name: str) -> None:
        self._options, self._name = options, name
        self._opened = False
        self._client: Client = GuardedClient()
        self._parser = LeanParser(self._client)
        self._client._ps = self._parser  # type: ignore[assignment]
        self._inbox = f"_INBOX.{NUID().next().decode()}"
        self._answers = f"{self._inbox}.".encode()  # prefix of reply subjects, before the token
        self._asked: dict[bytes, asyncio.Future[Reply] | Callable[[Reply | Disconnected], None]] = {}
        self._tokens = 0
        # grows whenever earlier answers of the servers may no longer hold
        self.incarnation = 0
        self.on_lost: list[Callable[[], None]] = []
        self.on_back: list[Callable[[], None]] = []

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        return self._client._max_payload

    async def open(self) -> None:
        """Raises Unreachable if no server answers within the connect timeout, EvenlaneError if one refuses, ConfigError
        for a file without valid credentials or certificates.
        """
        login = self._options.login()
        try:
            await cancellable(self._connect(login))
        except (OSError, TimeoutError, nats.errors.Error) as error:
            where, why = ", ".join(self._options.servers), self._why(error)
            refusal = refused(error) or refused(self._client.last_error)
            await cancellable(self._abandon())
            if refusal is not None:
                raise EvenlaneError(f"NATS at {where} refuses: {refusal}") from error
            raise Unreachable(f"NATS at {where} does not answer: {why}") from error
        except asyncio.CancelledError:
            await self._abandon()
            raise
        self._opened = True
        self.listen(f"{self._inbox}.*", self._on_reply)

    def _why(self, error: Exception) -> str:
        """The cause of the failure. nats-py knows more than that the time ran out, if an attempt of it failed."""
        cause = self._client.last_error or error
        if isinstance(cause, TimeoutError):
            return f"{type(cause).__name__}; if something listens there, it doesn't speak as NATS does"
        return str(cause) or type(cause).__name__

    async def _connect(self, login: dict[str, Any]) -> None:
        options = self._options
        # A server answers in two pieces. Once it was connected, nats-py retries for ever; the timeout prevents that.
        async with asyncio.timeout(options.connect_timeout):
            await self._client.connect(
                list(options.servers),
                name=self._name,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,  # type: ignore[arg-type]
                connect_timeout=2,
                ping_interval=3,
                max_outstanding_pings=1,  # detects a silently dead connection within 6 s
                pending_size=64 << 20,
                error_cb=self._on_error,
                disconnected_cb=self._on_lost,
                reconnected_cb=self._on_back,
                **login,
            )

    async def _abandon(self) -> None:
        try:
            async with asyncio.timeout(_FAREWELL_S):  # the end of a failed TLS handshake isn't reported
                await self._client.close()
        except (OSError, nats.errors.Error, asyncio.CancelledError):
            _log.debug("closing a connection that never was")

    async def close(self) -> None:
        """Flush pending data, unless the server reads nothing for 2 s, and close."""
        self.on_lost.clear()
        self.on_back.clear()
        try:
            if self._opened and not self._client.is_closed:
                await cancellable(self._close())
        finally:
            self._fail_asked("the connection was closed")

    async def _close(self) -> None:
        """Bounded in time: nats-py would wait without end for a hanging server to read pending data."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self._client.close()
        except TimeoutError:
            _log.debug("a connection is cut off", connection=self._name, reason="the server reads nothing")
            writer = getattr(self._client._transport, "_io_writer", None)
            if writer is not None:
                writer.transport.abort()

    async def _on_error(self, error: Exception) -> None:
        _log.debug("nats", error=str(error) or type(error).__name__)
        # nats-py would retry until the timeout; with several servers, another one may accept the login
        if not self._opened and len(self._options.servers) == 1 and (refusal := refused(error)) is not None:
            raise refusal

    async def _on_lost(self) -> None:
        if not self._client.is_closed:  # closed by us
            _log.warning("NATS is out of reach", connection=self._name)
        self.incarnation += 1
        # nats-py would send it to the next server, long after the caller got Disconnected
        self._client._pending.clear()
        self._client._pending_data_size = 0
        self._fail_asked("NATS went away before it answered")
        for callback in list(self.on_lost):
            callback()

    async def _on_back(self) -> None:
        _log.info("NATS is back", connection=self._name)
        self.incarnation += 1
        for callback in list(self.on_back):
            callback()

    def _fail_asked(self, why: str) -> None:
        asked, self._asked = self._asked, {}
        for waiting in asked.values():
            if not isinstance(waiting, asyncio.Future):
                waiting(Disconnected(why))
            elif not waiting.done():
                waiting.set_exception(Disconnected(why))
                waiting.exception()  # retrieved, so that asyncio doesn't log it if the caller has given up

    def send(self, subject: str, body: bytes, headers: bytes = b"", reply: str = "") -> None:
        """Queue one publish. Raises Disconnected if there is no connection."""
        self._send(subject.encode(), body, headers, reply.encode())

    def _send(self, subject: bytes, body: bytes, headers: bytes, reply: bytes) -> None:
        client = self._client
        if not client.is_connected:
            raise Disconnected("there is no connection to NATS at the moment")
        if headers:
            command = b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
                subject, reply, len(headers), len(headers) + len(body), headers, body,
            )  # fmt: skip
        else:
            command = b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(body), body)
        client._pending.append(command)
        client._pending_data_size += len(command)
        queue = client._flush_queue
        if queue is not None and queue.empty():
            queue.put_nowait(asyncio.get_running_loop().create_future())

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

        def take(reply: Reply | Disconnected) -> None:
            if future.done():
                return
            if isinstance(reply, Disconnected):
                future.set_exception(reply)
            elif is_last(reply):
                future.set_result(reply)
            else:
                self._asked[token] = take

        token = self.ask_then(subject, body, b"", take)
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
        self._send(subject.encode(), body, headers, self._answers + token)
        self._asked[token] = waiting
        return token

    async def ask_all(self, subject: str, body: bytes, timeout: float = 10.0) -> list[Reply]:  # noqa: ASYNC109
        """Send a request, and collect the messages of the response up to the status that ends it, which is the last of
        the list. (A server before 2.11 doesn't support this, and sends one message.) Raises Disconnected or
        TimeoutError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        replies: list[Reply] = []

        def take(reply: Reply | Disconnected) -> None:
            if done.done():
                return
            if isinstance(reply, Disconnected):
                done.set_exception(reply)
                return
            replies.append(reply)
            if h.added(reply.headers, TIME) is not None and h.added(reply.headers, "Nats-Num-Pending") is not None:
                self._asked[token] = take  # not a status: more messages follow
            else:
                done.set_result(None)

        token = self.ask_then(subject, body, b"", take)
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
        """Send a request and wait for the response. Raises Disconnected or TimeoutError."""
        # (Python 3.11's wait_for swallows a cancellation that comes together with the answer)
        async with asyncio.timeout(timeout):
            return await self.ask(subject, body, headers)

    async def api(self, verb: str, request: Any = None, timeout: float = 5.0) -> dict[str, Any]:  # noqa: ASYNC109
        """Call JetStream's API. Raises ApiError, Disconnected, TimeoutError."""
        payload = b"" if request is None else msgspec.json.encode(request)
        reply = await self.request(f"$JS.API.{verb}", payload, timeout=timeout)
        return answered(verb, reply)

    async def api_as(self, kind: type[T], verb: str, request: Any = None, timeout: float = 5.0) -> T:  # noqa: ASYNC109
        """`api`, with the response decoded (engine/store/jetstream/api/values.py)."""
        return read_as(kind, verb, await self.api(verb, request, timeout))

    def listen(self, subject: str, callback: Callable[[bytes, bytes, bytes, bytes], None]) -> int:
        """Subscribe. The callback runs inside the parser and must be quick. The subscription survives reconnects."""
        client = self._client
        client._sid += 1
        sid = int(client._sid)
        self._parser.raw[b"%d" % sid] = callback
        client._subs[sid] = _Quiet(subject)  # type: ignore[assignment]
        client._pending.append(b"SUB %b  %d\r\n" % (subject.encode(), sid))
        client._pending_data_size += 1
        if client._flush_queue is not None and client._flush_queue.empty():
            client._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return sid

    def unlisten(self, sid: int) -> None:
        if self._parser.raw.pop(b"%d" % sid, None) is None:
            return
        self._client._subs.pop(sid, None)
        if self._client.is_connected:
            self._client._pending.append(b"UNSUB %d \r\n" % sid)
            self._client._pending_data_size += 1


class _Quiet:
    """The record of a subscription that nats-py needs in order to renew it; the parser delivers the messages."""

    _queue = ""
    _max_msgs = 0
    _received = 0
    _wait_for_msgs_task = None
    _message_iterator = None
    _pending_next_msgs_calls = None

    def __init__(self, subject: str) -> None:
        self._subject = subject

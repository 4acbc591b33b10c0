"""Pushes messages to the endpoints of their topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.node.push.breaker import BreakerState
from evenlane.engine.node.push.client import DEFAULT, Client, PushTuning, tls
from evenlane.engine.node.push.endpoint import Endpoints
from evenlane.engine.node.push.request import headers_of
from evenlane.engine.node.push.response import PushFailed, failure
from evenlane.engine.node.push.retry_after import pause_s
from evenlane.engine.node.push.secret_files import NoSecret, Secret, SecretFiles
from evenlane.engine.node.push.signature import signature, webhook_id
from evenlane.engine.push import handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.push.endpoint import Endpoint
    from evenlane.engine.node.push.response import PushResponse

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_SHORTEST_S = 0.01  # of a pause
_NO_SECRET_S = 10.0  # until a missing secret is looked for again
_EXTRA_S = 2.0  # what a push may take in addition to its timeout
_ASKS_FOR_REST = (429, 503)


class Pusher:
    """`await pusher(message)` pushes one message of a topic with `push`. It returns if the endpoint took the message;
    it raises Pause if the endpoint should be paused, and PushFailed if the attempt failed.
    """

    def __init__(
        self,
        settings: Settings,
        tuning: PushTuning = DEFAULT,
        inject: Callable[[dict[str, str]], None] | None = None,
    ) -> None:
        """`inject` adds trace headers to those of a push. Raises ConfigError."""
        self._tuning, self._inject = tuning, inject
        self._private = settings.push_private
        self._tls = tls(settings.push_ca)
        self._secrets = SecretFiles(settings.push_secrets)
        self._endpoints = Endpoints()
        self._client: Client | None = None

    async def open(self) -> None:
        """Open the client in the event loop that will push; otherwise the first push does it."""
        self._open_client()

    def _open_client(self) -> Client:
        if self._client is None:
            self._client = Client(private=self._private, context=self._tls, tuning=self._tuning)
        return self._client

    async def close(self) -> None:
        """Close all connections. A later push opens the client again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __call__(self, message: Message) -> None:
        topic = message.queue.rules.topic
        if topic is None or topic.push is None:
            await handle(message)
            return
        endpoint = self._endpoints.get(message.project, topic.push)
        now = now_ns()
        if wait := endpoint.breaker.wait(now):
            reason = f"{endpoint.where} has failed repeatedly, and gets no requests for now"
            raise Pause(max(_SHORTEST_S, wait / _SECOND), reason)
        secret = self._secret(endpoint, now)
        token = endpoint.breaker.begin(now)
        try:
            answer = await self._post(endpoint, secret, message)
            self._judge(endpoint, secret, answer)
        except PushFailed as error:
            self._on_failure(endpoint, token, error)
            raise
        except BaseException:  # a requested pause, or the node's end: no verdict on the endpoint
            endpoint.breaker.abandon(token)
            raise
        self._on_success(endpoint, token)

    def _secret(self, endpoint: Endpoint, now: int) -> Secret:
        """Raises Pause: a secret that is missing here is no fault of the message."""
        ref = endpoint.settings["secret_ref"]
        if ref is None:
            return Secret((), ())
        try:
            return self._secrets.get(ref, now)
        except NoSecret as error:
            self._log_once(endpoint, str(error))
            raise Pause(_NO_SECRET_S, str(error)) from error

    async def _post(self, endpoint: Endpoint, secret: Secret, message: Message) -> PushResponse:
        timeout: float = endpoint.settings["timeout"]
        # A push ends by its own timeout; ack_wait, which may be shorter, is for arbitrary handlers.
        message.in_progress()
        message.alive_at += int((timeout + _EXTRA_S) * _SECOND)
        identity, timestamp = webhook_id(message.project, message.id), int(time.time())
        headers = headers_of(
            message.headers, endpoint.headers, identity=identity, timestamp=timestamp, attempt=message.attempt,
            signature=signature(secret.keys, identity, timestamp, message.body) or None,
        )  # fmt: skip
        if self._inject is not None:
            self._inject(headers)
        return await self._open_client().post(endpoint.url, headers, message.body, timeout, endpoint.where)

    def _judge(self, endpoint: Endpoint, secret: Secret, answer: PushResponse) -> None:
        """Raises PushFailed, Pause."""
        if answer.is_success:
            return
        if answer.status in _ASKS_FOR_REST and answer.retry_after is not None:
            rest = pause_s(answer.retry_after, time.time())
            if rest is not None:
                raise Pause(rest, f"HTTP {answer.status} from {endpoint.where}, which asks for a pause of {rest:g} s")
            self._log_once(endpoint, "a Retry-After is neither seconds nor a date: passed over")
        raise failure(answer, endpoint.where, (*endpoint.confidential, *secret.texts))

    def _on_success(self, endpoint: Endpoint, token: int) -> None:
        was = endpoint.breaker.state
        endpoint.breaker.note_success(token)
        if was is not BreakerState.CLOSED and endpoint.breaker.state is BreakerState.CLOSED:
            _log.info("endpoint answers again", project=endpoint.project, endpoint=endpoint.where)

    def _on_failure(self, endpoint: Endpoint, token: int, error: PushFailed) -> None:
        if not error.is_outage:
            self._on_success(endpoint, token)  # the endpoint is up: it has answered
            return
        was, now = endpoint.breaker.state, now_ns()
        endpoint.breaker.note_failure(token, now)
        if was is not BreakerState.OPEN and endpoint.breaker.state is BreakerState.OPEN:
            seconds = endpoint.breaker.wait(now) / _SECOND
            _log.warning(
                "endpoint is left alone", project=endpoint.project, seconds=seconds, error=error.for_logs
            )  # fmt: skip

    @staticmethod
    def _log_once(endpoint: Endpoint, what: str) -> None:
        if what not in endpoint.logged:
            endpoint.logged.add(what)
            _log.warning(what, project=endpoint.project, endpoint=endpoint.where)

"""A gateway's connection by NATS, which survives whatever others publish.

The client nats-py stops reading for good at a subject or a header that isn't valid UTF-8. nats-server takes such a
subject from a publisher by NATS (by MQTT it refuses it), and a stream would deliver it to each gateway in turn. It also
takes a publisher's header `Status` for a word of the server, and such a message would never be handled.
"""

import logging
from functools import partial

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from evenlane import Unreachable
from evenlane.engine.cluster import connections
from evenlane.engine.store.jetstream.backend import nats_options
from evenlane.engine.store.jetstream.client.guarded import GuardedClient
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.delivery.protocol_parser import LeanParser
from examples.iot.settings import PlatformSettings
from examples.iot.subjects import shorten

_STATUS = "Status"
_log = logging.getLogger(__name__)


async def connect(settings: PlatformSettings, name: str) -> Client:
    """Connect with Evenlane's settings, and connect again whenever the connection ends, with passwords and certificates
    as they are then. Raises ConfigError, Unreachable, and EvenlaneError if the server refuses.
    """
    # Evenlane's own connection says in one sentence what is wrong with the settings; nats-py tries again for ever.
    trial = connections.bus(settings.evenlane, f"{name} trial")
    await trial.open()
    await trial.close()
    options = nats_options(settings.evenlane)
    connection = _TolerantClient(options)
    try:
        await connection.connect(
            list(options.servers),
            name=name,
            max_reconnect_attempts=-1,
            inbox_prefix=options.inbox,
            error_cb=_on_error,
            disconnected_cb=partial(_say, connection, "is out of reach"),
            reconnected_cb=partial(_say, connection, "is back"),
            **options.login(),
        )
    except (nats.errors.Error, OSError) as error:
        raise Unreachable(f"NATS at {', '.join(options.servers)} does not answer: {error}") from error
    return connection


class _TolerantClient(GuardedClient):
    """The overridden methods are internal ones of nats-py: a test on a real server notices if a new version has other
    ones.
    """

    def __init__(self, options: NatsOptions) -> None:
        super().__init__(options.tls)
        self._inbox = f"{options.inbox}.".encode()
        parser = LeanParser(self)  # nats-py's own one closes finally when a login ends, as after a change of password
        parser.on_denied = _on_denied
        self._ps = parser

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        if headers and not subject.startswith(self._inbox):  # only there the server itself speaks
            headers = {name: value for name, value in headers.items() if name != _STATUS}
        readable, answer = (each.decode(errors="replace").encode() for each in (subject, reply))
        return super()._build_message(sid, readable, answer, data, headers)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None


async def _on_error(error: Exception) -> None:
    """An attempt to connect has failed: nats-py would log each one with a traceback."""
    _log.debug("NATS: %s", error)


async def _say(connection: Client, what: str) -> None:
    if not connection.is_closed:  # by us
        _log.warning("NATS %s", what)


def _on_denied(what: str, subject: str) -> None:
    _log.warning("NATS denies this user a %s: %s", what, shorten(subject))

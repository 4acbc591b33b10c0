"""A gateway's connection by NATS, which survives whatever others publish.

The client nats-py stops reading for good at a subject or a header that isn't valid UTF-8. nats-server takes such a
subject from a publisher by NATS (by MQTT it refuses it), and a stream would deliver it to each gateway in turn. It also
takes a publisher's header `Status` for a word of the server, and such a message would never be handled.
"""

from nats.aio.client import Client
from nats.aio.msg import Msg

from examples.iot.settings import PlatformSettings

_INBOX, _STATUS = b"_INBOX.", "Status"


async def connect(settings: PlatformSettings, name: str) -> Client:
    """Connect, and connect again whenever the connection ends. Raises ConfigError, nats.errors.Error, OSError."""
    connection = _TolerantClient()
    servers = settings.nats.split(",")
    await connection.connect(servers, name=name, max_reconnect_attempts=-1, **settings.login.options())
    return connection


class _TolerantClient(Client):
    """Both methods are internal ones of nats-py: a test on a real server notices if a new version has other ones."""

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        if headers and not subject.startswith(_INBOX):  # only there the server itself speaks
            headers = {name: value for name, value in headers.items() if name != _STATUS}
        readable, answer = (each.decode(errors="replace").encode() for each in (subject, reply))
        return super()._build_message(sid, readable, answer, data, headers)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, IndexError):
            return None

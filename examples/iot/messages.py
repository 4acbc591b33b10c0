"""The messages of the platform. All are JSON, and fields that aren't named here are ignored."""

import re
from typing import Literal, TypeVar

import msgspec

from evenlane import ConfigError

REGISTER, CLOSE = "register", "close"
"""The kinds of messages in a project's queue that aren't data."""
URGENT = "high"
"""Their priority: a registration doesn't wait behind the project's data."""

_ID = re.compile(r"[!-~]{1,180}")
# What msgspec raises for text in a wrong encoding and for deeply nested lists, besides its own errors.
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_T = TypeVar("_T")


class Unreadable(ConfigError):
    """The body of a message isn't JSON of the expected form."""


class Announcement(msgspec.Struct, omit_defaults=True):
    """A project's announcement. With `reopen`, it opens a closed project again; without, it only asks."""

    project: str
    gateway: str = ""
    qps: float | None = None
    reopen: bool = True


class Close(msgspec.Struct):
    """A close in the project's queue. `revision` is the topic's when it was asked for: a close that arrives a second
    time, after the project was opened again, has an older one.
    """

    revision: int
    gateway: str = ""


class Answer(msgspec.Struct, omit_defaults=True):
    """The answer to an announcement or a close."""

    project: str
    state: Literal["open", "closed", "refused"]
    partition: int
    node: str = ""
    reason: str = ""

    def sentence(self) -> str:
        by = f", answered by {self.node}" if self.node else ""
        return self.reason or f"{self.project} is {self.state} on partition {self.partition}{by}"


class Reading(msgspec.Struct):
    """The fields of a device's data that the platform looks at."""

    id: str | None = None
    device: str | None = None


def decode(body: bytes, kind: type[_T]) -> _T:
    """Return a body as an object of this class, whatever somebody has published. Raises Unreadable."""
    try:
        return msgspec.json.decode(body, type=kind)
    except _UNREADABLE as error:
        raise Unreadable(str(error)) from None


def id_of(body: bytes, otherwise: str) -> str:
    """Return the id that the device has given its message, else `otherwise`, such as its place in a stream."""
    try:
        given = decode(body, Reading).id
    except Unreadable:
        return otherwise
    return given if given is not None and _ID.fullmatch(given) else otherwise


def project_of(body: bytes) -> str:
    """Return the project that an announcement names; an empty text if it can't be read."""
    try:
        return decode(body, Announcement).project
    except Unreadable:
        return ""

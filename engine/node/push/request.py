"""The headers of a push. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine._version import __version__
from evenlane.quota.topics.push import is_value, may_be_sent

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS = {"content-type": "application/octet-stream", "user-agent": f"Evenlane/{__version__}"}
# A packed answer is never unpacked: nobody is to make a gigabyte of a kilobyte here.
_OURS = {"accept-encoding": "identity"}


def headers_of(
    message: Mapping[str, str],
    topic: Mapping[str, str],
    *,
    identity: str,
    timestamp: int,
    attempt: int,
    signature: str | None,
) -> dict[str, str]:
    """Whoever put the message may set what the topic doesn't, and neither of them what is ours. What can't be sent on,
    such as a line break that a plain NATS client let through, is left out. Names are in small letters.
    """
    theirs = {name.lower(): text for name, text in message.items() if may_be_sent(name) and is_value(text)}
    fixed = {name.lower(): text for name, text in topic.items()}
    ours = {
        **_OURS,
        "webhook-id": identity,
        "webhook-timestamp": str(timestamp),
        "evenlane-attempt": str(attempt),
    }
    if signature is not None:
        ours["webhook-signature"] = signature
    return {**_DEFAULTS, **theirs, **fixed, **ours}

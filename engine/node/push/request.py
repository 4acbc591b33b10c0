"""Builds the headers of a push. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine._version import __version__
from evenlane.quota.topics.push import is_value, may_be_sent

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULTS = {"content-type": "application/octet-stream", "user-agent": f"Evenlane/{__version__}"}
# Compressed responses are never decompressed, so there can be no decompression bomb.
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
    """The headers of a push, in lower case. Ours take precedence over the topic's, and the topic's over the message's.
    Headers that can't be sent, such as one with a line break that a plain NATS client let through, are left out.
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

"""Signatures by the Standard Webhooks specification, version 1: HMAC-SHA256 over id, time and body. Pure."""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX = "whsec_"
# Characters that an id keeps. The full stop isn't one, as it separates id, time and body; nor is the percent sign.
_PLAIN = "!#$&'()*+,/:;=?@[]^`{|}"


def keys(text: str) -> tuple[bytes, ...]:
    """The keys in a secret's file: one or more, separated by white space. A key is `whsec_` and base64, or any other
    text, taken literally. Raises ValueError with a reason that reveals nothing of them.
    """
    found = tuple(_key(each) for each in text.split())
    if not found:
        raise ValueError("it is empty")
    return found


def _key(text: str) -> bytes:
    if not text.startswith(_PREFIX):
        return text.encode()
    bare = text.removeprefix(_PREFIX)
    try:
        key = b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what follows whsec_ in it is not base64") from None
    if not key:
        raise ValueError("nothing follows whsec_ in it")
    return key


def webhook_id(project: str, message_id: str) -> str:
    """One id for all attempts, whatever characters the message's own id has."""
    return f"{project}:{quote(message_id, safe=_PLAIN).replace('.', '%2E')}"


def signature(of: Iterable[bytes], identity: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature per key. `timestamp` in unix s."""
    content = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join(f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in of)

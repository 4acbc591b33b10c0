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
# What stands in an id as it is. Not a full stop, which parts id, time and body, nor the percent sign of what is quoted.
_PLAIN = "!#$&'()*+,/:;=?@[]^`{|}"


def keys(text: str) -> tuple[bytes, ...]:
    """The keys in a secret's file: one or more, with white space between; `whsec_` and base64, or anything else as it
    stands. Raises ValueError with a reason that tells nothing of them.
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
    """One id over all attempts, whatever the message's own has in it."""
    return f"{project}:{quote(message_id, safe=_PLAIN).replace('.', '%2E')}"


def signature(of: Iterable[bytes], identity: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key. `timestamp` in unix s."""
    content = b"%b.%d.%b" % (identity.encode(), timestamp, body)
    return " ".join(f"v1,{b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in of)

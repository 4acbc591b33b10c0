"""Reads when a certificate expires. Python's `ssl` tells it only for certificates that it has verified."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_LONG = 0x80  # the length of a field is in as many further bytes
_CENTURY = 50  # RFC 5280, 4.1.2.5.1: a year from 50 on is in the 20th century


class _Field(NamedTuple):
    tag: int
    content: bytes


def expiry_of_pem(text: str) -> datetime | None:
    """When the first certificate of a file in PEM expires. None if it can't be read."""
    found = _FIRST.search(text)
    try:
        return None if found is None else expiry_of_der(ssl.PEM_cert_to_DER_cert(found[0]))
    except ValueError:
        return None


def expiry_of_der(der: bytes) -> datetime | None:
    """When a certificate in DER expires (RFC 5280, 4.1.2.5: `notAfter`). None if it can't be read."""
    try:
        certificate = next(_fields(der))
        signed = _fields(next(_fields(certificate.content)).content)
        first = next(signed)
        # serial number, algorithm, issuer, validity; before them the version, if it isn't the first one
        validity = [first, *signed][4 if first.tag == _VERSION else 3]
        _not_before, not_after = _fields(validity.content)
        return _time(not_after)
    except (ValueError, IndexError, StopIteration):
        return None


def _fields(data: bytes) -> Iterator[_Field]:
    """The fields of a constructed value (X.690, 8.1). Raises IndexError or ValueError for malformed data."""
    position = 0
    while position < len(data):
        tag, length, position = data[position], data[position + 1], position + 2
        if length & _LONG:
            more = length & ~_LONG
            length, position = int.from_bytes(data[position : position + more], "big"), position + more
        if position + length > len(data):
            raise ValueError("a field is longer than what contains it")
        yield _Field(tag, data[position : position + length])
        position += length


def _time(field: _Field) -> datetime:
    text = field.content.decode("ascii")
    if field.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY else "20") + text
    elif field.tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)

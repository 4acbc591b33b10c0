"""Sizes in readable form: `64MiB`, `5MB`, or a plain number of bytes."""

import re

_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_UNITS = {"": 1, **_BINARY, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,15}) ?(|[KMGT]iB|[kMGT]B)", re.ASCII)


def parse_size(text: str) -> int | None:
    """Parse bytes from `64MiB`, `5MB` or a plain number of bytes; None if it is none of these."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def format_size(count: int) -> str:
    """Format bytes in the largest binary unit that gives a whole number, as `parse_size` reads it: `64MiB`, `1000`."""
    for unit, size in reversed(_BINARY.items()):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)

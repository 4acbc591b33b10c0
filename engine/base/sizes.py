"""Sizes in readable form: `64MiB`, `5MB`, or a plain number of bytes."""

import re

_UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"([0-9]{1,15}) ?(|KiB|MiB|GiB|kB|MB|GB)", re.ASCII)


def parse_size(text: str) -> int | None:
    """Parse bytes from `64MiB`, `5MB` or a plain number of bytes; None if it is none of these."""
    match = _SIZE.fullmatch(text.strip())
    return int(match[1]) * _UNITS[match[2]] if match else None


def format_size(count: int) -> str:
    """Format bytes in the largest binary unit that gives a whole number, as `parse_size` reads it: `64MiB`, `1000`."""
    for unit in ("GiB", "MiB", "KiB"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]}{unit}"
    return str(count)

"""Makes errors of one cause equal: ids, numbers, times and addresses in their texts are replaced. Pure, and without
imports from Evenlane, so that reports can use it, too.
"""

from __future__ import annotations

import re

_LONGEST = 300  # characters
_UNITS = "ns|us|ms|s|m|min|h|d|B|kB|KB|MB|GB|KiB|MiB|GiB|%"

# The first alternative that fits decides, so the order matters: whole ids and addresses before the numbers in them.
_PARTS = {
    # the status of an endpoint says what is wrong, so it stays
    "kept": r"\bHTTP(?:/[0-9.]+)? [1-5][0-9]{2}\b|\b(?:status|code|error)(?: code)?[ =:]{1,2}[1-5][0-9]{2}\b",
    "time": (
        r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}"
        r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
        r"|\b[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
    ),
    "email": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "address": r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?\b",
    "id": (
        r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
        r"|\b0x[0-9a-fA-F]+\b"
    ),
    "measure": rf"(?<![A-Za-z0-9])[0-9][0-9,_]*(?:\.[0-9]+)?(?P<unit> ?(?:{_UNITS}))(?![A-Za-z0-9])",
    # a letter after a digit: tokens, hashes and ids of stores, but not sha256 or order17
    "mixed": r"\b[A-Za-z]*[0-9]+[A-Za-z][A-Za-z0-9]*",
    "number": r"[0-9]+(?:[,_.][0-9]+)*",
}
_PATTERN = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _PARTS.items()))
_WORDS = {"time": "<time>", "email": "<email>", "address": "<address>", "id": "<id>", "mixed": "<id>", "number": "<n>"}


def unify_error(text: str) -> str:
    """Return the error with `<id>`, `<n>`, `<time>`, `<email>` and `<address>` in the place of what differs between
    messages, on one line of at most 300 characters. The result of a result is the same.
    """
    return " ".join(_PATTERN.sub(_replace, text[: 4 * _LONGEST]).split())[:_LONGEST]


def _replace(found: re.Match[str]) -> str:
    kind = found.lastgroup or ""
    if found["kept"] is not None:
        return found["kept"]
    if found["measure"] is not None:
        return f"<n>{found['unit']}"
    return _WORDS[kind]

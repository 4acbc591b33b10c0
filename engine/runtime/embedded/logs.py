"""Finds the cause of a server's end in its log."""

import json
from pathlib import Path

PORT_TAKEN = "address already in use"
_TAIL = 65_536  # bytes


def since(path: Path, start: int) -> str:
    """Return the log from the byte `start` on, at most its last 64 KiB."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(start, size - _TAIL))
        return file.read().decode(errors="replace")


def last_words(text: str) -> str:
    """Return the line that names the cause (fatal or panic), otherwise the last line; at most 300 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "nothing"
    return next((cause for line in reversed(lines) if (cause := _cause(line))), lines[-1])[:300]


def _cause(line: str) -> str | None:
    _, fatal, rest = line.partition("[FTL] ")
    return rest if fatal else _cause_in_json(line)


def _cause_in_json(line: str) -> str | None:
    """Return `message: error` of etcd's fatal log line, without its stack trace."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("level") not in ("fatal", "panic"):
        return None
    return ": ".join(str(record[part]) for part in ("msg", "error") if part in record)

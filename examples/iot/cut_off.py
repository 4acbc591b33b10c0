"""Devices that nats-server has cut off because a message was too large.

Such a message never arrives, and MQTT 3.1.1 has no word for the reason. So the platform reads it in the server's log.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

_LINE = re.compile(r'"(?P<device>[^"]*)" - maximum payload exceeded: (?P<size>\d+) vs (?P<limit>\d+)')
_LOOK_EACH_S = 0.5


def explain(line: str) -> str | None:
    """Return a sentence for a line of nats-server's log; None if it is about something else."""
    found = _LINE.search(line)
    if found is None:
        return None
    size, limit = int(found["size"]), int(found["limit"])
    return (
        f'device "{found["device"]}" was cut off: it sent {size:,} bytes in one message, which was not acknowledged;'
        f" the server takes at most {limit:,} (max_payload), so it must send less, or in parts"
    )


async def watch(log: Path, say: Callable[[str], None]) -> None:
    """Say it once for each device and size, until cancelled. A device may try again for ever."""
    reported: set[str] = set()
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(0, 2)
        while True:
            for line in lines:
                if (sentence := explain(line)) and sentence not in reported:
                    reported.add(sentence)
                    say(sentence)
            await asyncio.sleep(_LOOK_EACH_S)

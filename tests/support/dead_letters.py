"""Dead letters for tests, in the format of docs/reference/messages.md."""

from evenlane.engine.base import names
from evenlane.engine.core.ports import Stored
from evenlane.engine.core.wire import headers as h

DIED = 1_700_000_000_000_000_000
PUT = DIED - 60_000_000_000


def block(own: str = "m1", *, project: str = "acme", env: str = "online", group: int = 0, **more: str) -> bytes:
    """The headers of a dead letter. `more` adds headers or replaces them, with `_` for `-`."""
    priority = more.pop("priority", "mid")
    headers = {
        h.ID: f"{project}:{own}:LANES_{env}_3:17:5:dead",
        h.KEY: "customer-7",
        h.ATTEMPT: "5",
        h.PUT: str(PUT),
        h.ORIGIN: f"LANES_{env}_3:17",
        h.REASON: "failed 5 times",
        h.ERROR: "ValueError: no such order",
        h.SUBJECT: names.lane_subject(env, 3, project, group, priority),
        "traceparent": "00-1-2-01",
    }
    headers |= {name.replace("_", "-"): text for name, text in more.items()}
    return h.encode({name: text for name, text in headers.items() if text})


def stored(own: str = "m1", *, project: str = "acme", body: bytes = b"an order", **more) -> Stored:
    headers = block(own, project=project, **more)
    return Stored(7, DIED, names.dead_subject(more.get("env", "online"), project), headers, body)


async def bury(store, own: str, *, project: str = "acme", env: str = "online", body: bytes = b"", **more) -> int:
    """Store a dead letter, and return its sequence."""
    headers = block(own, project=project, env=env, **more)
    return (await store.put(names.dead_subject(env, project), headers, body or own.encode())).sequence

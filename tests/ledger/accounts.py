"""The messages that wait in the streams, as they can be counted while no node runs."""

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster import connections
from evenlane.engine.core.wire import headers as h
from tests.ledger import settle_logs


async def waiting(settings: Settings, partitions: int) -> set[str]:
    """The ids of all waiting messages."""
    logs = await settle_logs.read(settings, partitions)
    store = connections.store(settings, "ledger test")
    await store.open()
    found: set[str] = set()
    try:
        for kind in ("lanes", "later"):
            for number in range(partitions):
                lane = LaneId(kind, number)
                sequences = sorted(logs[names.stream(settings.env, lane)].waiting)
                for stored in await store.get(lane, sequences):
                    assert stored is not None
                    found.add(_id(stored.headers))
    finally:
        await store.close()
    return found


def _id(headers: bytes) -> str:
    own = (h.value(headers, h.ID) or "").partition(":")[2]
    return own.rsplit(":", 3)[0] if h.value(headers, h.ORIGIN) is not None else own

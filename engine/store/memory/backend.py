"""The `memory://` backend of `evenlane.engine.store.factory`: a store in this process, for tests and trials. It ends
with the process, and no other process can reach it, neither nodes nor commands. All its users must run on one event
loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.errors import ConfigError
from evenlane.engine.store.memory.bus import MemoryBroker, MemoryBus
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.export_port import StreamSource
    from evenlane.engine.core.replication_port import Replication


class _Address(NamedTuple):
    server: MemoryServer
    broker: MemoryBroker


_places: dict[str, _Address] = {}  # by URL, until the process ends


def store(settings: Settings, _name: str, *, feeds: bool = False) -> MemoryStore:
    """The first store opened under a URL sets its time windows. `feeds` makes no difference."""
    del feeds
    return MemoryStore(_place(settings).server, settings.cluster)


def bus(settings: Settings, _name: str) -> MemoryBus:
    return MemoryBus(_place(settings).broker)


def source(_settings: Settings, _name: str) -> StreamSource:
    """Raises ConfigError: reports run in processes of their own."""
    raise ConfigError("memory:// lives in the memory of one process: a report, which is another process, can't read it")


def replication(_settings: Settings, _name: str) -> Replication:
    """Raises ConfigError: there is nothing to replicate."""
    raise ConfigError("memory:// lives in the memory of one process: its streams have no replicas")


def _place(settings: Settings) -> _Address:
    assert settings.store is not None
    [url] = settings.store
    if url not in _places:
        server = MemoryServer(
            duplicate_window_s=settings.duplicate_window, dead_letter_keep_s=settings.dead_letter_keep
        )
        _places[url] = _Address(server, MemoryBroker())
    return _places[url]

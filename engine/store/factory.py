"""Chooses the adapter of the store port from the settings. Each adapter is imported when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.export_port import StreamSource
    from evenlane.engine.core.ports import OpenStore
    from evenlane.engine.core.replication_port import Replication
    from evenlane.engine.core.request_bus import RequestBus


class StoreBackend(Protocol):
    """The adapter that the setting `store` selects. All that it returns must still be opened; `name` is the
    connection's name at the server. Each method raises ConfigError for an unreadable secret.
    """

    def store(self, settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
        """A store; nodes need `feeds`."""

    def bus(self, settings: Settings, name: str) -> RequestBus:
        """A separate connection for requests and responses, which must not delay the store's traffic."""

    def source(self, settings: Settings, name: str) -> StreamSource:
        """A source for reports."""

    def replication(self, settings: Settings, name: str) -> Replication:
        """On how many servers the streams are stored. Raises ConfigError if the store has only one place for them."""


def backend(settings: Settings) -> StoreBackend:
    if settings.is_in_memory:
        from evenlane.engine.store.memory import backend as memory  # noqa: PLC0415

        return memory
    from evenlane.engine.store.jetstream import backend as jetstream  # noqa: PLC0415

    return jetstream

"""Chooses the adapter of the store port by the settings. Each is imported when it is first needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.export_port import StreamSource
    from evenlane.engine.core.ports import OpenStore, RequestBus


class StoreBackend(Protocol):
    """What the settings' `store` leads to. Nothing that it returns is open yet; `name` is what a server calls the
    connection. Each raises ConfigError for a secret that can't be read.
    """

    def store(self, settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
        """A node wants `feeds`."""

    def bus(self, settings: Settings, name: str) -> RequestBus:
        """A connection of its own: for questions and answers, which the store must not wait for."""

    def source(self, settings: Settings, name: str) -> StreamSource:
        """For reports."""


def backend(settings: Settings) -> StoreBackend:
    if settings.is_in_memory:
        from evenlane.engine.store.memory import backend as memory  # noqa: PLC0415

        return memory
    from evenlane.engine.store.jetstream import backend as jetstream  # noqa: PLC0415

    return jetstream

"""The JetStream backend of `evenlane.engine.store.factory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.export.source import JetStreamSource
from evenlane.engine.store.jetstream.replication import JetStreamReplication
from evenlane.engine.store.jetstream.store import JetStreamStore

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings


def store(settings: Settings, name: str, *, feeds: bool = False) -> JetStreamStore:
    """Raises ConfigError for an unreadable secret."""
    return JetStreamStore(
        nats_options(settings),
        settings.cluster,
        name=name,
        storage=settings.storage,
        replicas=settings.replicas,
        duplicate_window_s=settings.duplicate_window,
        dead_letter_keep_s=settings.dead_letter_keep,
        meter_keep_s=settings.meter_keep,
        feed_budget=settings.feed_budget,
        feeds_apart=feeds,
    )


def bus(settings: Settings, name: str) -> Connection:
    return Connection(nats_options(settings), name)


def source(settings: Settings, name: str) -> JetStreamSource:
    return JetStreamSource(nats_options(settings), name)


def replication(settings: Settings, name: str) -> JetStreamReplication:
    return JetStreamReplication(nats_options(settings), name, settings.env)


def nats_options(settings: Settings) -> NatsOptions:
    return NatsOptions(
        servers=settings.nats_servers,
        user=settings.nats_user,
        password=settings.nats_password,
        creds_file=_path(settings.nats_creds_file),
        ca=_path(settings.nats_ca),
        cert=_path(settings.nats_cert),
        key=_path(settings.nats_key),
        monitor=settings.nats_monitor or (),
        inbox=settings.nats_inbox,
    )


def _path(path: object) -> str | None:
    return None if path is None else str(path)

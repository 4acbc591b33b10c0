"""Builds clients for the store and etcd from the settings, and translates their errors into Evenlane's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base import tls
from evenlane.engine.base.aio.loop_thread import LoopThread
from evenlane.engine.base.config.settings import CLUSTER_SETTINGS
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import ConfigError, EvenlaneError, Unreachable
from evenlane.engine.store.factory import backend
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import CoordinationError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.base.aio.loop_thread import Runner
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.export_port import StreamSource
    from evenlane.engine.core.ports import OpenStore
    from evenlane.engine.core.replication_port import Replication
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.ring.coordination.ports import Coordination


def load_store(settings: Settings) -> None:
    """Import the store's adapter now. The import takes 0.1 s or more, for which it must not block an event loop."""
    backend(settings)


def store(settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
    """Return a store that isn't open yet. `name` names the connection on the server. A node sets `feeds`."""
    return backend(settings).store(settings, name, feeds=feeds)


def bus(settings: Settings, name: str) -> RequestBus:
    """Return a request bus that isn't open yet, on a connection of its own, separate from the store's."""
    return backend(settings).bus(settings, name)


def source(settings: Settings, name: str) -> StreamSource:
    """Return a source from which reports read streams, on a connection that isn't open yet."""
    return backend(settings).source(settings, name)


def replication(settings: Settings, name: str) -> Replication:
    """Return a connection that isn't open yet, for the number of replicas of streams. Raises ConfigError."""
    return backend(settings).replication(settings, name)


def etcd(settings: Settings, *, may_fork: bool = False) -> EtcdCoordination:
    """Return a client that connects on first use. With `may_fork`, the process may fork. Raises ConfigError."""
    ca, cert, key = _path(settings.etcd_ca), _path(settings.etcd_cert), _path(settings.etcd_key)
    tls.context("etcd", ca, cert, key)  # otherwise gRPC reports only that it can't create a security handshaker
    settings.etcd_password()  # at first an error in its file is one of the settings

    def read_password() -> str | None:
        try:
            return settings.etcd_password()
        except ConfigError as error:
            raise Unavailable(str(error)) from error

    try:
        return EtcdCoordination(
            settings.etcd,
            user=settings.etcd_user,
            password=read_password,
            read_expiry=tls.expired_on,
            ca_cert=ca,
            cert_key=key,
            cert_cert=cert,
            may_fork=may_fork,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


class Connections:
    """Factory of a node's outside connections. A simulation substitutes its own."""

    def etcd(self, settings: Settings) -> Coordination:
        return etcd(settings)

    def lease_runner(self) -> Runner:
        """Return the runner that keeps the node's lease, with an etcd client of its own."""
        return LoopThread("lease")

    def store(self, settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
        return store(settings, name, feeds=feeds)

    def questions(self, settings: Settings, name: str) -> RequestBus:
        return bus(settings, name)


def config_known_so_far(settings: Settings) -> dict[str, object]:
    """Return the cluster settings that were set explicitly for this process, for `agree_cluster_config`."""
    values = {key: getattr(settings, key) for key in CLUSTER_SETTINGS}
    return {key: value for key, value in values.items() if value is not None}


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise errors of the store and etcd as readable ones: Unreachable for silence, EvenlaneError for a refusal."""
    try:
        yield
    except (Unavailable, Lost) as error:
        raise Unreachable(str(error)) from error
    except (CoordinationError, Refused) as error:
        raise EvenlaneError(str(error)) from error


def _path(path: object) -> str | None:
    return None if path is None else str(path)

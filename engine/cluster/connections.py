"""The clients of the store and of etcd, as the settings want them, and their errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.base import tls
from evenlane.engine.base.aio.loop_thread import LoopThread
from evenlane.engine.base.config.settings import CLUSTER_FACTS
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
    from evenlane.engine.core.ports import OpenStore, RequestBus
    from evenlane.ring.coordination.ports import Coordination


def load_store(settings: Settings) -> None:
    """Import the adapter of the store now. It takes a tenth of a second, and more on a busy machine, for which no event
    loop should stand still.
    """
    backend(settings)


def store(settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
    """A store that isn't open yet; `name` is what the server calls the connection. A node wants `feeds`."""
    return backend(settings).store(settings, name, feeds=feeds)


def bus(settings: Settings, name: str) -> RequestBus:
    """A connection of its own, not open yet: for questions and answers, which no store needs to know of."""
    return backend(settings).bus(settings, name)


def source(settings: Settings, name: str) -> StreamSource:
    """A connection by which reports read streams, not open yet."""
    return backend(settings).source(settings, name)


def etcd(settings: Settings) -> EtcdCoordination:
    """Connects when first asked. Raises ConfigError."""
    ca, cert, key = _path(settings.etcd_ca), _path(settings.etcd_cert), _path(settings.etcd_key)
    tls.context("etcd", ca, cert, key)  # gRPC would say that it fails to create a security handshaker
    try:
        return EtcdCoordination(
            settings.etcd,
            user=settings.etcd_user,
            password=settings.etcd_password(),
            ca_cert=ca,
            cert_key=key,
            cert_cert=cert,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


class Connections:
    """How a node reaches the outside. A simulation gives it another one."""

    def etcd(self, settings: Settings) -> Coordination:
        return etcd(settings)

    def lease_runner(self) -> Runner:
        """What keeps the node's lease, with a client of etcd of its own."""
        return LoopThread("lease")

    def store(self, settings: Settings, name: str, *, feeds: bool = False) -> OpenStore:
        return store(settings, name, feeds=feeds)

    def questions(self, settings: Settings, name: str) -> RequestBus:
        return bus(settings, name)


def config_known_so_far(settings: Settings) -> dict[str, object]:
    """The facts of the cluster that this process was told, for `evenlane.engine.cluster.cluster_config.agree`."""
    told = {key: getattr(settings, key) for key in CLUSTER_FACTS}
    return {key: value for key, value in told.items() if value is not None}


@contextmanager
def translate_errors() -> Iterator[None]:
    """What the store and etcd answer, as an error that a person can read: Unreachable for silence."""
    try:
        yield
    except (Unavailable, Lost) as error:
        raise Unreachable(str(error)) from error
    except (CoordinationError, Refused) as error:
        raise EvenlaneError(str(error)) from error


def _path(path: object) -> str | None:
    return None if path is None else str(path)

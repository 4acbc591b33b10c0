"""What a node's process does for scaling, whether it leads or not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.scaler.recommendation import Recommendations

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.control.scaling.target import ReplicaTarget
    from evenlane.engine.scaler.keda.server import KedaServer
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)


def find_target(settings: Settings) -> ReplicaTarget | None:
    """Return what the leader changes the replicas of, None if it changes nothing itself. Raises ConfigError."""
    if settings.scaling != "leader":
        return None
    from evenlane.engine.scaler.kubernetes import find_deployment  # noqa: PLC0415 - aiohttp takes long to import

    return find_deployment(settings, os.environ)


class ScalerHost:
    """Makes the recommendation available as the setting `scaling` says: call `open`, then `close`. `desired` is for the
    metrics.
    """

    def __init__(self, coordination: Coordination, settings: Settings, records: RecordReader) -> None:
        self._settings = settings
        self._recommendations = Recommendations(
            coordination, settings.cluster, settings.scaling, settings.scaling_interval, records
        )
        self._keda: KedaServer | None = None

    async def open(self) -> None:
        """Open. Raises PortUnavailable."""
        settings = self._settings
        if settings.scaling not in ("keda", "hpa"):
            return
        self._recommendations.open()
        if settings.scaling == "keda":
            from evenlane.engine.scaler.keda.server import KedaServer  # noqa: PLC0415 - gRPC servers are for few nodes

            self._keda = KedaServer(settings.scaling_listen, settings.env, self._recommendations)
            await self._keda.open()
            _log.info("serving KEDA", address=self._keda.address)

    async def close(self) -> None:
        """Close. No effect if never opened."""
        if self._keda is not None:
            await self._keda.close()
        await self._recommendations.close()

    @property
    def keda_address(self) -> str:
        """The address at which KEDA is served, "" if it isn't."""
        return self._keda.address if self._keda is not None else ""

    @property
    def desired(self) -> int | None:
        """The number of nodes for the metrics; None unless an autoscaler reads it there, and there is one."""
        return self._recommendations.current.nodes if self._settings.scaling == "hpa" else None

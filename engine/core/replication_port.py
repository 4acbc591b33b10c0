"""The replication port: on how many servers an environment's streams are stored."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class StreamReplicas(NamedTuple):
    """A stream that is to have `replicas`, of which `current` have all of it (its leader included; 0: no leader)."""

    stream: str
    replicas: int
    current: int

    @property
    def is_complete(self) -> bool:
        return self.current >= self.replicas


class Replication(Protocol):
    """A connection to the store for this purpose. Calls may raise Lost: ask again."""

    async def open(self) -> None:
        """Raises Unreachable."""

    async def list_streams(self) -> list[StreamReplicas]:
        """All streams of the environment, sorted by name."""

    async def set_replicas(self, stream: str, replicas: int) -> None:
        """Change the number of replicas; the servers copy what is missing meanwhile. Raises Refused."""

    async def close(self) -> None: ...

"""The port through which the leader changes the number of replicas."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from evenlane.engine.errors import EvenlaneError


class ScaleError(EvenlaneError):
    """The number of replicas couldn't be read or changed. The text is a clause for people."""


class Scale(NamedTuple):
    """The number of replicas that is asked for, as of `version`."""

    replicas: int
    version: str


class ReplicaTarget(Protocol):
    """Something with replicas, such as a Deployment. Both methods raise ScaleError."""

    async def read(self) -> Scale: ...

    async def change(self, replicas: int, version: str) -> None:
        """Ask for this number, if nobody has changed anything since `version`."""

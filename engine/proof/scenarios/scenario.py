"""What a scenario is to those who run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from evenlane.engine.proof.scenarios.report import Report

Tell = Callable[[str, float], None]
"""Told what is going on, and which share of the whole is done."""


class Scenario(ABC):
    name: ClassVar[str]
    about: ClassVar[str]
    sim_rounds: ClassVar[int] = 1
    broker_rounds: ClassVar[int] = 2
    """How often the arms are run, one after another, if nobody says otherwise: real machines are noisy."""

    @abstractmethod
    def simulate(self, seed: int, rounds: int, tell: Tell) -> Report:
        """Without any server. Round k uses seed + k."""

    @abstractmethod
    async def on_broker(self, url: str, seed: int, rounds: int, tell: Tell) -> Report:
        """On a nats-server that nobody else uses meanwhile; what is made there is deleted."""

    def over(self, nodes: int) -> Scenario:  # noqa: ARG002
        """The same over so many nodes. Raises ConfigError."""
        raise ConfigError(f"--nodes is nothing for {self.name}: it is about one node, or has its own number of them")

    def with_backlog(self, messages: int) -> Scenario:  # noqa: ARG002
        """The same with so many messages in each lane that is taken over. Raises ConfigError."""
        raise ConfigError(f"--backlog is nothing for {self.name}: it is for rebalance")

    def notes(self) -> list[str]:
        return []


def silent(_what: str, _share: float) -> None:
    """A Tell for whoever doesn't want to know."""


def between(option: str, value: int, least: int, most: int) -> int:
    """Raises ConfigError."""
    if not least <= value <= most:
        raise ConfigError(f"{option} must be from {least} to {most}, not {value}")
    return value

"""Evenlane: a multi-tenant, priority, fair-scheduling consumer engine on NATS JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.errors import (
        BacklogFull,
        ConfigError,
        EvenlaneError,
        InvalidName,
        NotAcknowledged,
        PayloadTooLarge,
        UnknownProject,
    )
    from engine.message import Message, Pause, Reject, Retry, batch
    from engine.producer import Producer

__version__ = "0.1.0"

_HOMES = {
    "Engine": "engine.engine",
    "Message": "engine.message",
    "Pause": "engine.message",
    "Producer": "engine.producer",
    "Reject": "engine.message",
    "Retry": "engine.message",
    "batch": "engine.message",
    "BacklogFull": "engine.errors",
    "ConfigError": "engine.errors",
    "EvenlaneError": "engine.errors",
    "InvalidName": "engine.errors",
    "NotAcknowledged": "engine.errors",
    "PayloadTooLarge": "engine.errors",
    "UnknownProject": "engine.errors",
}

__all__ = [
    "BacklogFull", "ConfigError", "Engine", "EvenlaneError", "InvalidName", "Message", "NotAcknowledged", "Pause",
    "PayloadTooLarge", "Producer", "Reject", "Retry", "UnknownProject", "batch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use: `evenlane --help` needs neither NATS nor etcd."""
    if name not in _HOMES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)

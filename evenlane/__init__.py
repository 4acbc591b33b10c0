"""Evenlane: a multi-tenant, priority, fair-scheduling consumer engine on NATS JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenlane.engine.engine import Engine
    from evenlane.engine.errors import (
        BacklogFull,
        ConfigError,
        EvenlaneError,
        InvalidName,
        NotAcknowledged,
        PayloadTooLarge,
        UnknownProject,
    )
    from evenlane.engine.message import Message, Pause, Reject, Retry, batch
    from evenlane.engine.ports import Receipt
    from evenlane.engine.producer import Producer, Put
    from evenlane.engine.settings import Settings

__version__ = "0.1.0"

_HOMES = {
    "Engine": "evenlane.engine.engine",
    "Message": "evenlane.engine.message",
    "Pause": "evenlane.engine.message",
    "Producer": "evenlane.engine.producer",
    "Put": "evenlane.engine.producer",
    "Receipt": "evenlane.engine.ports",
    "Reject": "evenlane.engine.message",
    "Retry": "evenlane.engine.message",
    "Settings": "evenlane.engine.settings",
    "batch": "evenlane.engine.message",
    "BacklogFull": "evenlane.engine.errors",
    "ConfigError": "evenlane.engine.errors",
    "EvenlaneError": "evenlane.engine.errors",
    "InvalidName": "evenlane.engine.errors",
    "NotAcknowledged": "evenlane.engine.errors",
    "PayloadTooLarge": "evenlane.engine.errors",
    "UnknownProject": "evenlane.engine.errors",
}

__all__ = [
    "BacklogFull", "ConfigError", "Engine", "EvenlaneError", "InvalidName", "Message", "NotAcknowledged", "Pause",
    "PayloadTooLarge", "Producer", "Put", "Receipt", "Reject", "Retry", "Settings", "UnknownProject", "batch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use: `evenlane --help` needs neither NATS nor etcd."""
    if name not in _HOMES:
        raise AttributeError(f"module 'evenlane' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)

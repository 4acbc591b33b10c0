"""Evenlane: a multi-tenant, priority, fair-scheduling consumer engine on NATS JetStream."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if os.environ.get("EVENLANE_PURE", "") not in {"", "0"}:
    from evenlane._pure import import_from_source

    import_from_source()

from evenlane.engine._version import __version__ as __version__

if TYPE_CHECKING:
    from evenlane.engine.admin.dead_letters.dead_letters import DeadLetters
    from evenlane.engine.admin.topics.apply import AppliedTopics
    from evenlane.engine.admin.topics.sync_topics import SyncTopics
    from evenlane.engine.admin.topics.topics import TopicFields, Topics
    from evenlane.engine.app.application import Evenlane
    from evenlane.engine.app.typed_message import Message
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.handler_logs import MessageFilter, add_message_fields
    from evenlane.engine.control.topics.status import TopicStatus
    from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
    from evenlane.engine.core.message.message import batch
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.errors import (
        BacklogFull,
        ConfigError,
        DataInUse,
        EvenlaneError,
        Fenced,
        InvalidName,
        InvalidPut,
        InvalidTopic,
        NodeIdInUse,
        NotAcknowledged,
        PayloadTooLarge,
        PortUnavailable,
        ProducerClosed,
        PutRefused,
        RevisionConflict,
        TopicDraining,
        UnknownEpoch,
        UnknownProject,
        Unreachable,
    )
    from evenlane.engine.producer.producer import Producer
    from evenlane.engine.producer.put import Put
    from evenlane.engine.producer.sync_producer import SyncProducer
    from evenlane.engine.runtime.engine import Engine
    from evenlane.ring.placement.strategy import PlacementNode, PlacementRequest


_HOMES = {
    "AppliedTopics": "evenlane.engine.admin.topics.apply",
    "DeadLetters": "evenlane.engine.admin.dead_letters.dead_letters",
    "Engine": "evenlane.engine.runtime.engine",
    "Evenlane": "evenlane.engine.app.application",
    "MessageFilter": "evenlane.engine.base.handler_logs",
    "Message": "evenlane.engine.core.message.message",
    "Pause": "evenlane.engine.core.message.handler_exceptions",
    "PlacementNode": "evenlane.ring.placement.strategy",
    "PlacementRequest": "evenlane.ring.placement.strategy",
    "Producer": "evenlane.engine.producer",
    "Put": "evenlane.engine.producer",
    "Receipt": "evenlane.engine.core.ports",
    "Reject": "evenlane.engine.core.message.handler_exceptions",
    "Retry": "evenlane.engine.core.message.handler_exceptions",
    "Settings": "evenlane.engine.base.config.settings",
    "SyncProducer": "evenlane.engine.producer",
    "SyncTopics": "evenlane.engine.admin.topics.sync_topics",
    "TopicFields": "evenlane.engine.admin.topics.topics",
    "TopicStatus": "evenlane.engine.control.topics.status",
    "Topics": "evenlane.engine.admin.topics.topics",
    "add_message_fields": "evenlane.engine.base.handler_logs",
    "batch": "evenlane.engine.core.message.message",
    "BacklogFull": "evenlane.engine.errors",
    "ConfigError": "evenlane.engine.errors",
    "DataInUse": "evenlane.engine.errors",
    "EvenlaneError": "evenlane.engine.errors",
    "Fenced": "evenlane.engine.errors",
    "InvalidName": "evenlane.engine.errors",
    "InvalidPut": "evenlane.engine.errors",
    "InvalidTopic": "evenlane.engine.errors",
    "NodeIdInUse": "evenlane.engine.errors",
    "NotAcknowledged": "evenlane.engine.errors",
    "PayloadTooLarge": "evenlane.engine.errors",
    "PortUnavailable": "evenlane.engine.errors",
    "ProducerClosed": "evenlane.engine.errors",
    "PutRefused": "evenlane.engine.errors",
    "RevisionConflict": "evenlane.engine.errors",
    "TopicDraining": "evenlane.engine.errors",
    "UnknownEpoch": "evenlane.engine.errors",
    "UnknownProject": "evenlane.engine.errors",
    "Unreachable": "evenlane.engine.errors",
}

__all__ = [
    "AppliedTopics", "BacklogFull", "ConfigError", "DataInUse",
    "DeadLetters", "Engine", "Evenlane", "EvenlaneError", "Fenced",
    "InvalidName", "InvalidPut", "InvalidTopic", "Message", "MessageFilter", "NodeIdInUse", "NotAcknowledged", "Pause",
    "PayloadTooLarge", "PlacementNode", "PlacementRequest", "PortUnavailable", "Producer", "ProducerClosed", "Put",
    "PutRefused", "Receipt", "Reject", "Retry", "RevisionConflict", "Settings", "SyncProducer", "SyncTopics",
    "TopicDraining", "TopicFields", "TopicStatus", "Topics", "UnknownEpoch", "UnknownProject", "Unreachable",
    "add_message_fields", "batch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import on first use: `evenlane --help` needs neither NATS nor etcd."""
    if name not in _HOMES:
        raise AttributeError(f"module 'evenlane' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)

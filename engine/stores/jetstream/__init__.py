"""The store port on NATS JetStream."""

from engine.stores.jetstream.store import JetStreamStore

__all__ = ["JetStreamStore"]

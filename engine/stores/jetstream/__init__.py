"""The store port on NATS JetStream."""

from evenlane.engine.stores.jetstream.store import JetStreamStore

__all__ = ["JetStreamStore"]

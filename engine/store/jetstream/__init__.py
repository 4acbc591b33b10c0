"""The store port on NATS JetStream."""

from evenlane.engine.store.jetstream.store import JetStreamStore

__all__ = ["JetStreamStore"]

"""Publishes messages: `Producer`, `SyncProducer`, and `Put` for batches."""

from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Outcome, Put
from evenlane.engine.producer.sync_producer import SyncProducer

__all__ = ["Outcome", "Producer", "Put", "SyncProducer"]

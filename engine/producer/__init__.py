"""Publishes messages: `Producer`, and `Put` for batches."""

from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Outcome, Put

__all__ = ["Outcome", "Producer", "Put"]

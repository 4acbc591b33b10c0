"""Putting messages: `Producer`, and `Put` for many at once."""

from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.put import Outcome, Put

__all__ = ["Outcome", "Producer", "Put"]

"""Putting messages: `Producer`, and `Put` for many at once."""

from engine.producer.producer import Producer
from engine.producer.puts import Outcome, Put

__all__ = ["Outcome", "Producer", "Put"]

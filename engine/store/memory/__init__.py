"""The store port in memory, for tests and simulation: no threads, no randomness; time and faults are calls."""

from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore

__all__ = ["MemoryServer", "MemoryStore"]

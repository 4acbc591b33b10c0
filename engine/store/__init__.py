"""Implementations of the store port (engine/core/ports.py): JetStream for real, in-memory for tests and simulation."""

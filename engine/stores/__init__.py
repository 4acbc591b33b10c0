"""Implementations of the store port (engine/ports.py): JetStream for real, in-memory for tests and simulation."""

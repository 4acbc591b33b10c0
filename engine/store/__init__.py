"""Adapters of the store port (engine/core/ports.py): JetStream for production, in-memory for tests and simulation."""

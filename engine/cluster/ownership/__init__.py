"""Partition ownership: lease, membership, epochs, handoff."""

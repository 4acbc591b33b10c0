"""Partitions that the node owns: takeover, feeds, handoff."""

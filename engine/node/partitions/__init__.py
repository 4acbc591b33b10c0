"""The partitions that the node owns: takeover, feeds, handoff."""

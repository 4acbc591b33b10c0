"""Which node owns which partition: lease, membership, epochs, handoff."""

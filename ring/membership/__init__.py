"""What a node and the leader do about ownership: state machines without I/O."""

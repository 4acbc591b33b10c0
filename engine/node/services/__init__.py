"""Background services of each node."""

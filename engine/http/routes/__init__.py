"""Routes of a node."""

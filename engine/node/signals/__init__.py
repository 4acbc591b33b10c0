"""Signals that connect parts of the node which don't know each other: shared state, and events that wake."""

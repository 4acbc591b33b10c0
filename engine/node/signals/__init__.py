"""Signals that connect parts of the node which don't know each other: state with one writer, and events that wake."""

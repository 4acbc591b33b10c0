"""The in-memory state of one queue: the messages of one group and priority."""

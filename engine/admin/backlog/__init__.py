"""Reads and drops a project's backlog."""

"""A project's backlog: what waits, read from the store alone; and dropping it on purpose (docs/backlog.md)."""

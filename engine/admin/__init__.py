"""Queries and operations: requested by any process, answered by nodes."""

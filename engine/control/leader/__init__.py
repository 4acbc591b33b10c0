"""Duties of the leader."""

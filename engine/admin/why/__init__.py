"""Explains why a queue waits."""

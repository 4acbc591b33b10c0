"""Replays: dead letters, and what was handled, return to their queues."""

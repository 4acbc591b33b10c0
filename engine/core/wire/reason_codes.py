"""The reasons for which the head of a queue may wait (X8), as the words that commands and metrics show."""

REASONS = (
    "quota", "concurrency", "headroom", "higher_priority", "fairness", "not_due", "ordered", "endpoint", "paused",
    "no_owner", "handlers_busy", "no_handler",
)  # fmt: skip

INDIRECT = frozenset({"higher_priority", "not_due"})
"""Reasons that don't explain why a project waits as a whole: its messages wait for others of its own, or for a time."""

"""What the head of a queue may wait for (X8): the words of the surface."""

REASONS = (
    "quota", "concurrency", "headroom", "higher_priority", "fairness", "not_due", "ordered", "endpoint", "paused",
    "no_owner", "handlers_busy",
)  # fmt: skip

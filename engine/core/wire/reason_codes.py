"""The reasons for which the head of a queue may wait (X8), as public surface words."""

REASONS = (
    "quota", "concurrency", "headroom", "higher_priority", "fairness", "not_due", "ordered", "endpoint", "paused",
    "no_owner", "handlers_busy",
)  # fmt: skip

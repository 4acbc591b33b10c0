"""What reports say, as pure functions from frames to frames (docs/reference/report-figures.md): no I/O, no action."""

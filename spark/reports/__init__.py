"""What reports say, as pure functions from frames to frames (docs/report-figures.md): no I/O, no action."""

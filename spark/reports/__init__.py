"""Computes report figures by pure functions from frames to frames (docs/reference/report-figures.md)."""

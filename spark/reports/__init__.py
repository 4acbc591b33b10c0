"""Computes report figures, as pure functions from frames to frames (docs/reference/report-figures.md): no
I/O, no actions.
"""

"""Worlds, fakes, factories and checkers of tests. See docs/contributing/testing.md."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder of the repository."""

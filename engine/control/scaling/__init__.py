"""Decides how many nodes should run (docs/explanation/scaling.md). Pure: no clock, no I/O."""

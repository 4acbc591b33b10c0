"""Decisions: no I/O, no clock, no chance. Time is an argument."""

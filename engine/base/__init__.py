"""Foundations that know nothing of the engine: clock, units, names, settings, logs, the process."""

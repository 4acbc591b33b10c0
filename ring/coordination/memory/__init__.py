"""The coordination port in memory, for tests and simulation."""

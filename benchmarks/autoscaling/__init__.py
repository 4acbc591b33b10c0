"""Simulates a day of a cluster under several scalers, on virtual time: `python -m benchmarks.autoscaling`."""

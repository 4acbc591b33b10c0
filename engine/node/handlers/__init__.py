"""Runs handlers: slots, threads, deadlines."""

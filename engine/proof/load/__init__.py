"""Loads: tenants, arrival processes, where the groups lie, and the trace of what became of each message."""

"""Loads: tenants, arrival processes, the placement of groups, and the trace of each message."""

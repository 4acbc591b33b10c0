"""Chooses the next message. Pure and synchronous: time is an argument, in integer nanoseconds."""

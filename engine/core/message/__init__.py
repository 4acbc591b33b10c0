"""A message as handlers and operators see it."""

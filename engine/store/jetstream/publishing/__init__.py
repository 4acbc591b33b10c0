"""Publishes messages, and reads their acknowledgements. Each put passes here, so `make wheel` compiles it."""

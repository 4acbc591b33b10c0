"""Publishes messages, and reads their acknowledgements. `make wheel` compiles it, as each put passes here."""

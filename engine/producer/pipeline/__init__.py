"""The way of a put: routing, limits, sending, retries, outcome. `make wheel` compiles it, as each put passes here."""

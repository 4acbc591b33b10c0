"""The path of a put: routing, limits, sending, retries, outcome. Each put passes here, so `make wheel` compiles it."""

"""The connection to NATS."""

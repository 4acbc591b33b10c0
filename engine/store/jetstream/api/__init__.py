"""JetStream's API: requests and responses."""

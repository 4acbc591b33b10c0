"""What a node publishes for reports (docs/metering.md)."""

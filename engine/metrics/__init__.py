"""What a node measures of its tenants, and how Prometheus is told (docs/why.md)."""

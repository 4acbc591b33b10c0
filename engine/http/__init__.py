"""What a node serves by HTTP (docs/reference/wait-reasons.md): health, metrics, and why messages wait."""

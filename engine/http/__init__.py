"""What a node serves by HTTP (docs/why.md): health, metrics, and why messages wait."""

"""HTTP server of a node (docs/reference/wait-reasons.md): health, metrics, explanations of waits."""

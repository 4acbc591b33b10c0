"""HTTP server of a node (docs/reference/http-api.md): health, metrics, explanations of waits."""

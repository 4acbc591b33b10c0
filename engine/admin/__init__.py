"""Questions and operations: asked anywhere, answered by nodes."""

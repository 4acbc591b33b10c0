"""Control plane: turns topic specs into topics in effect."""

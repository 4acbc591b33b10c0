"""Topics: what people write, what is accepted of it, and its status."""

"""History of the last two minutes."""

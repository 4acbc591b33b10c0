"""Shows and simulates plans."""

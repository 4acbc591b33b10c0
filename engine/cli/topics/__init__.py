"""Commands `evenlane topics` and `evenlane topics template`."""

"""`evenlane topics` and `evenlane templates`."""

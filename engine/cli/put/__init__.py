"""`evenlane put`."""

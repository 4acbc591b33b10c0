"""`evenlane run` and `evenlane up`."""

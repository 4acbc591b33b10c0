"""Commands `evenlane run` and `evenlane up`."""

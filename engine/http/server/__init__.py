"""Server: sockets, tokens, headers."""

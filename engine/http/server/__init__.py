"""The server: sockets, tokens, headers."""

"""Shares of a topic over nodes: what one node's groups don't use, another's may (docs/adr/0019)."""

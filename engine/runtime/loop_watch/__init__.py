"""Watch over the node's event loop."""

"""The watch over the node's event loop."""

"""The routes of a node."""

"""Topic specs, accepted topics, and their status."""

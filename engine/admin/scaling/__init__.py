"""Shows how many nodes there should be, and why."""

"""What crosses a wire between nodes and whoever reports on them: forms alone, no I/O."""

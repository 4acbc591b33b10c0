"""The process: it wires the planes and runs them."""

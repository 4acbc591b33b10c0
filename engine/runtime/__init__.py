"""The process: wires the planes and runs them."""

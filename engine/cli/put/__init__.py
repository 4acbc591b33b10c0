"""Command `evenlane put`."""

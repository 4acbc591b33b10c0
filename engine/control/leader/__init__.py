"""Tasks of the leader."""

"""The overview of the cluster."""

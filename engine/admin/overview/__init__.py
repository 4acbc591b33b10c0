"""Overview of the cluster."""

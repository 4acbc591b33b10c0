"""What runs beside the work on each node."""

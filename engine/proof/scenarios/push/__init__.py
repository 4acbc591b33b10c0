"""`push`: 50 endpoints, one of which fails in every way."""

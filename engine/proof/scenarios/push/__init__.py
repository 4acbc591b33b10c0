"""`push`: 50 endpoints, one of which goes bad in every way."""

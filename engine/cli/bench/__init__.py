"""`evenlane bench` and `evenlane demo`."""

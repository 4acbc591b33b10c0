"""Commands `evenlane bench` and `evenlane demo`."""

"""Names the next message. Pure and synchronous: time comes in as integer nanoseconds."""

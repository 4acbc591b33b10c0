"""What reports read of the servers: ranges of streams, and the backlog."""

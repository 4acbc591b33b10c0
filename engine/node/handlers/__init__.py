"""Running handlers: slots, threads, deadlines."""

"""A real nats-server as the scenarios use it: environments, and the processes that put a load."""

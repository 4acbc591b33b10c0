"""State machines, without I/O, for the ownership of partitions: a node's part, and the leader's."""

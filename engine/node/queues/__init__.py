"""The queues of the partitions that the node owns."""

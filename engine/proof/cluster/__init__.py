"""A real cluster as the scenarios use it: etcd, node processes, and the records of their handlers."""

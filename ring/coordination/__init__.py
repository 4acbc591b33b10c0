"""The coordination port, its adapter of etcd, and one in memory."""

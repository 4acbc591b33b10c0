"""The coordination port, and its adapters for etcd and in memory."""

"""The coordination port on etcd."""

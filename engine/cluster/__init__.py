"""All that a process reads and keeps in etcd."""

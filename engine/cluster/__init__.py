"""Adapters for etcd: everything a process reads from it or keeps in it."""

"""Placement of partitions on nodes: consistent hashing with bounded loads."""

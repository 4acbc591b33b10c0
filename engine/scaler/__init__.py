"""Carries out the number of nodes: the Kubernetes API for the leader, a service for KEDA, a figure for metrics."""

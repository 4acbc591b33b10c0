"""Grafana dashboards, Prometheus rules, and what builds them."""

"""Grafana dashboards, Prometheus rules, and what builds them."""

if __name__ != "evenlane.dashboards":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.dashboards, not " + __name__)

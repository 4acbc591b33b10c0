"""Grafana dashboards and Prometheus rules, and the code that builds them."""

if __name__ != "evenlane.dashboards":  # found as a folder of the checkout: each module would be loaded twice
    raise ImportError("import evenlane.dashboards, not " + __name__)

"""Who is next: bands inside a group, fairness between tenants, the cap on what a tenant has in flight. Pure."""

if __name__ != "evenlane.priority":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.priority, not " + __name__)

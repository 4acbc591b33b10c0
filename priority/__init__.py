"""The order of messages: bands inside a group, fairness between tenants, headroom between slots. Pure."""

if __name__ != "evenlane.priority":  # imported as a folder of the checkout: each module would exist twice
    raise ImportError("import evenlane.priority, not " + __name__)

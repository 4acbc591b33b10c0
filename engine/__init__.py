"""The engine: everything that moves messages (ARCHITECTURE.md)."""

if __name__ != "evenlane.engine":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.engine, not " + __name__)

"""Where things live: hashing of keys and groups, and the coordination port with its etcd adapter."""

if __name__ != "evenlane.ring":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.ring, not " + __name__)

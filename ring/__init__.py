"""The ring: hashing, placement of partitions on nodes, membership, and coordination through etcd."""

if __name__ != "evenlane.ring":  # imported as a folder of the checkout: each module would exist twice
    raise ImportError("import evenlane.ring, not " + __name__)

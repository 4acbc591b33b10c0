"""Where things live: hashing, placement of partitions on nodes, membership, and coordination through etcd."""

if __name__ != "evenlane.ring":  # found as a folder of the checkout: each module would be there twice
    raise ImportError("import evenlane.ring, not " + __name__)

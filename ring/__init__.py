"""Where things live: hashing of keys and groups, and the coordination port with its etcd adapter."""

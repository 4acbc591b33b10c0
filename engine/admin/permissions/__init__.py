"""Permission sets of least privilege, for the users of NATS and etcd."""

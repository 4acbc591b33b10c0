"""An accepted topic as etcd holds it."""

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.coordination.ports import KeyValue

ROOT = "/evenlane/online/"
KEY = ROOT + "accepted/acme"
GOOD = accept(complete(parse_spec(b'{"qps": 100}'), ClusterConfig()), 5, None)


def stored(value: bytes, revision: int, key: str = KEY) -> KeyValue:
    return KeyValue(key, value, 1, revision, 0)

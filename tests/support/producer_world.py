"""A producer on the store in memory, with topics and cluster config without etcd."""

from dataclasses import dataclass, field

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.producer.producer import Producer
from evenlane.engine.producer.tuning import ProducerTuning
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.quota.topics.topic import accept, complete, parse_spec

CLUSTER_CONFIG = ClusterConfig(partitions=16)


def accepted(spec: str, before=None):
    return accept(complete(parse_spec(spec.encode()), CLUSTER_CONFIG), 1, before)


class Topics(dict):
    """The accepted topics, by project, in place of a topic cache."""

    def set(self, project: str, spec: str) -> None:
        self[project] = accepted(spec, self.get(project))


@dataclass
class ProducerWorld:
    """A store in memory that a producer puts into. `env` is the environment of all parts."""

    env: str = "online"
    now: int = 1_700_000_000_000_000_000
    topics: Topics = field(default_factory=Topics)

    def __post_init__(self) -> None:
        self.server = MemoryServer(clock=lambda: self.now)
        self.store = MemoryStore(self.server, self.env)
        self.topics.set("acme", '{"qps": 400}')

    def producer(self, **more) -> Producer:
        given = {
            "settings": Settings(env=self.env),
            "store": self.store,
            "topics": self.topics,
            "facts": CLUSTER_CONFIG,
        }
        tuning = more.pop("tuning", ProducerTuning())
        made = Producer(**given | more)
        made.tuning = tuning
        return made

    def stored(self) -> list:
        """Every message of every lane."""
        names = [f"{kind}_{self.env}_{number}" for kind in ("LANES", "LATER") for number in range(16)]
        return [message for name in names for message in self.server.messages(name)]

"""Makes what the decision sees."""

from evenlane.engine.control.scaling.policy import Observation
from evenlane.ring.membership.records import LoadRecord, NodeRecord

PARTITIONS = 128


def observe(*nodes, replicas=None, partitions=PARTITIONS):
    """Make an observation of these records, named a, b, c, ...; by default there are as many replicas."""
    named = {chr(ord("a") + number): node for number, node in enumerate(nodes)}
    return Observation(named, len(nodes) if replicas is None else replicas, partitions)


def node(*, cpu=0.0, projects=10, slots=64, used=0.0, wanted=None, handling=0.1, blocked=None):
    load = LoadRecord(used=used, wanted=used if wanted is None else wanted, handling=handling, blocked=blocked or {})
    return NodeRecord(host="h", cpu=cpu, cores=1.0, projects=projects, slots=slots, load=load)

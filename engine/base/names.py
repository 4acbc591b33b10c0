"""Names in the wire format: validated before use, and built in one place (docs/reference/headers-and-subjects.md).

`env` is an environment, `cluster` the name of a cluster (`cluster_name`): that of the environment for the nodes that
run without a subscription, and another one for those of each named subscription. No environment and no subscription has
an underscore in its name, so a cluster's name says which of both it is.
"""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from evenlane.engine.errors import InvalidName

PREFIX = "/evenlane"
Kind = Literal["lanes", "later", "again", "dead", "busy"]
LANE_KINDS: tuple[Kind, ...] = ("lanes", "later", "again")
"""The kinds of streams that a partition may have."""

SHARED_KINDS: tuple[Kind, Kind] = ("lanes", "later")
"""The kinds of streams that all subscriptions read."""

_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_DIGITS = 18
_HOUR_DIGITS = 9  # an hour with more digits is after the year 100,000
_KEY = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


class LaneId(NamedTuple):
    """One stream of a partition: its lane (messages that are due) or its delay stream (messages that aren't). Or what a
    partition has in a stream for all partitions: the retries and replays of a named subscription ("again"). Or such a
    stream as a whole: `DEAD` or `BUSY`.
    """

    kind: Kind
    partition: int


DEAD = LaneId("dead", 0)
"""The stream of dead letters, one for all partitions."""
BUSY = LaneId("busy", 0)
"""The stream of in-flight records."""


def _check(pattern: re.Pattern[str], what: str, value: str, rule: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        shown = repr(value) if len(str(value)) <= 80 else f"{str(value)[:77]!r}..."
        kind = "" if isinstance(value, str) else f"; it must be text, and this is of type {type(value).__name__}"
        raise InvalidName(f"{what} {shown} is not valid: {rule}{kind}")
    return value


def check_project(name: str) -> str:
    return _check(_PROJECT, "project", name, "1 to 64 letters, digits, '_' or '-', the first a letter or digit")


def is_project(name: str) -> bool:
    return _PROJECT.fullmatch(name) is not None


def is_node(name: str) -> bool:
    return _NODE.fullmatch(name) is not None


def check_env(name: str) -> str:
    return _check(_PLAIN, "environment", name, "1 to 64 letters, digits or '-', the first a letter or digit")


def check_subscription(name: str) -> str:
    return _check(_PLAIN, "subscription", name, "1 to 64 letters, digits or '-', the first a letter or digit")


def check_priority_name(name: str) -> str:
    return _check(_PLAIN, "priority", name, "1 to 64 letters, digits or '-', the first a letter or digit")


def check_node(name: str) -> str:
    return _check(_NODE, "node", name, "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit")


def check_zone(name: str) -> str:
    return _check(_NODE, "zone", name, "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit")


def check_id(value: str) -> str:
    return _check(_ID, "id", value, "1 to 200 printable ASCII characters without spaces")


def check_key(value: str) -> str:
    return _check(_KEY, "key", value, "1 to 256 characters, none of them a control character")


def is_key(value: str) -> bool:
    return _KEY.fullmatch(value) is not None


def number(text: str) -> int | None:
    """Parse a number as in keys and subjects: up to 18 ASCII digits without padding. Returns None if it is none."""
    plain = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return int(text) if plain and (text[0] != "0" or text == "0") else None


def due_hour(text: str) -> int | None:
    """Parse the hour in the last word of a delay subject, which has no padding. Returns None if it is none."""
    return number(text) if len(text) <= _HOUR_DIGITS else None


def cluster_name(env: str, subscription: str = "") -> str:
    """Return the name of the nodes that work for one subscription of an environment; empty: the unnamed one."""
    return f"{env}_{subscription}" if subscription else env


def env_of(cluster: str) -> str:
    return cluster.partition("_")[0]


def subscription_of(cluster: str) -> str:
    """Return the subscription of a cluster; empty: the unnamed one."""
    return cluster.partition("_")[2]


def lane_kinds(cluster: str) -> tuple[Kind, ...]:
    """Return the kinds of streams that a cluster's partitions have: only a named subscription has "again"."""
    return LANE_KINDS if subscription_of(cluster) else LANE_KINDS[:2]


def stream(cluster: str, lane: LaneId) -> str:
    """Return the stream of a lane. Subscriptions share all of them but retries, replays and dead letters."""
    if lane == DEAD:
        return dead_stream(cluster)
    if lane.kind == "again":
        return again_stream(cluster)
    if lane == BUSY:
        return busy_stream(env_of(cluster))
    return f"{lane.kind.upper()}_{env_of(cluster)}_{lane.partition}"


def stream_of(subject: str) -> str:
    """Return the stream of a lane subject, a delay subject, or a retry's subject of a named subscription."""
    kind, cluster, partition = subject.split(".")[:3]
    return again_stream(cluster) if kind == "again" else f"{kind.upper()}_{cluster}_{partition}"


def again_stream(cluster: str) -> str:
    """Return the stream of a named subscription's retries and replays, one for all partitions. The cluster of the
    unnamed one has none: it uses its delay streams.
    """
    return f"AGAIN_{cluster}"


def dead_stream(cluster: str) -> str:
    return f"DEAD_{cluster}"


def settled_stream(cluster: str) -> str:
    return f"SETTLED_{cluster}"


def probe_stream(env: str) -> str:
    """Return the stream that is created and deleted to find out whether there is enough storage."""
    return f"RETAIN_{env}"


def find_clusters(env: str, streams: Iterable[str]) -> frozenset[str]:
    """Return the clusters of an environment whose streams of settle logs are among these."""
    logs = (name.removeprefix("SETTLED_") for name in streams if name.startswith("SETTLED_"))
    return frozenset(cluster for cluster in logs if env_of(cluster) == env)


def busy_stream(env: str) -> str:
    return f"BUSY_{env}"


def meter_stream(cluster: str) -> str:
    return f"METER_{cluster}"


def other_streams(cluster: str) -> tuple[str, ...]:
    """Return the streams that a cluster writes to and that aren't lanes."""
    again = (again_stream(cluster),) if subscription_of(cluster) else ()
    return dead_stream(cluster), busy_stream(env_of(cluster)), settled_stream(cluster), meter_stream(cluster), *again


def own_streams(cluster: str) -> tuple[str, ...]:
    """Return the streams of a named subscription that are created and deleted with it; none for the unnamed one."""
    if not subscription_of(cluster):
        return ()
    return settled_stream(cluster), again_stream(cluster), dead_stream(cluster), meter_stream(cluster)


def lane_subject(env: str, partition: int, project: str, group: int, priority: str) -> str:
    return f"lanes.{env}.{partition}.{project}.{group}.{priority}"


def later_subject(env: str, partition: int, project: str, group: int, priority: str, hour: int) -> str:
    """Return the subject of delayed messages. `hour` is the due time in whole hours since 1970."""
    return f"later.{env}.{partition}.{project}.{group}.{priority}.{hour}"


def again_subject(cluster: str, partition: int, project: str, group: int, priority: str, hour: int) -> str:
    """Return the subject of a named subscription's retries and replays. `hour` as in `later_subject`."""
    return f"again.{cluster}.{partition}.{project}.{group}.{priority}.{hour}"


def retry_subject(cluster: str, partition: int, project: str, group: int, priority: str, hour: int) -> str:
    """Return the subject of a cluster's retries: in a stream of its own, or in the delay stream for the unnamed
    subscription. `hour` as in `later_subject`.
    """
    subject = again_subject if subscription_of(cluster) else later_subject
    return subject(cluster, partition, project, group, priority, hour)


def lane_prefix(cluster: str, lane: LaneId) -> str:
    """Return what the subjects of a lane begin with, the last dot included; not for `DEAD` and `BUSY`."""
    taker = cluster if lane.kind == "again" else env_of(cluster)
    return f"{lane.kind}.{taker}.{lane.partition}."


def delay_subject(cluster: str, lane: LaneId, project: str, group: int, priority: str, hour: int) -> str:
    """Return the subject of a queue in a delay stream of any kind. `hour` as in `later_subject`."""
    return f"{lane_prefix(cluster, lane)}{project}.{group}.{priority}.{hour}"


def dead_subject(cluster: str, project: str) -> str:
    return f"dead.{cluster}.{project}"


def busy_subject(env: str, token: str) -> str:
    """Return the subject of one process's in-flight record."""
    return f"busy.{env}.{token}"


def meter_subject(cluster: str, node: str) -> str:
    """Return the subject of a node's records for reports. The node's id may contain dots."""
    return f"meter.{cluster}.{node}"


def settled_subject(cluster: str, lane: LaneId) -> str:
    return f"settled.{cluster}.{lane.kind}.{lane.partition}"


def key(cluster: str, *parts: str | int) -> str:
    """Return a key in etcd: `/evenlane/<env>/<part>/...`, or that of a named subscription's cluster:
    `/evenlane/<env>/subscription/<name>/<part>/...`.
    """
    env, _, subscription = cluster.partition("_")
    own = ("subscription", subscription) if subscription else ()
    return "/".join((PREFIX, env, *own, *map(str, parts)))

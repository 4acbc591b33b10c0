"""Topics as data: a spec is read strictly, completed by the cluster config, and published as accepted.

A spec is stored in etcd, where anyone may write; it is one JSON object. `parse_spec` checks each field by itself,
`complete` fills in missing fields and checks the fields against one another and the cluster, `accept` keeps track of
the groups in use. All reject with a `TopicError`: one sentence with field and reason.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec
from msgspec.structs import replace

from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics.fields import BACKOFF, FIELDS, MOST_GROUPS, flag, parts, whole
from evenlane.quota.topics.merge_quotas import merge_quotas
from evenlane.quota.topics.strict_json import TopicError, read_object, write_object
from evenlane.quota.topics.subscription_quota import SubscriptionQuota

__all__ = ["Accepted", "ClusterLimits", "Topic", "TopicError", "TopicSpec", "accept", "complete", "decode_accepted"]
__all__ += ["default_burst", "delete", "encode", "intern", "merge", "parse_spec", "without", "would_move_keys"]

MOST_BYTES = 65_536  # of a spec
_MOST_ACCEPTED_BYTES = 1_048_576
_MOST_REVISION = 2**53
ACCEPTED_FORMAT = 1
"""The newest format of an accepted topic that this release reads, and the format that it writes."""
_LATER = ("dead_letter_expired", "subscriptions", "number", "deleted")  # an older leader does not write these yet
_ADDED = ("active", "draining", "revision", "number", "deleted")  # fields of an accepted topic, after the topic's own


class ClusterLimits(Protocol):
    """The cluster config (`evenlane.engine.cluster.cluster_config.ClusterConfig`)."""

    @property
    def partitions(self) -> int: ...

    @property
    def group_qps(self) -> float:
        """Desired rate of a group, msg/s."""
        ...

    @property
    def max_group_qps(self) -> float:
        """Highest rate of a group, msg/s."""
        ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The fields that were given, each valid by itself. `qps` is always among them."""

    given: Mapping[str, Any]


class NewerTopic(TopicError):
    """A newer release has accepted the topic, in a format that this release doesn't know."""


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A complete topic. Times in seconds, rates in messages per second."""

    qps: float
    groups: int  # each has qps / groups
    burst: int  # messages that may start at once after a pause; it never doubles the first second
    borrow: bool = True  # whether a group may use the unused rate of its siblings
    weight: float  # share between tenants
    reserve: float = 0.0
    concurrency: int | None = None  # most messages in flight
    spread: int  # most partitions (P13)
    max_attempts: int = 5
    backoff: Backoff = Backoff()
    ttl: float = 259_200.0
    dead_letter_expired: bool = False
    ack_wait: float = 5.0
    max_backlog: int | None = None  # messages
    ordered: bool = False  # by key and priority
    ageing: float | None = None  # share of the turns for lower priorities
    state: Literal["active", "paused", "draining"] = "active"  # draining refuses puts
    push: dict[str, Any] | None = None
    subscriptions: dict[str, SubscriptionQuota] | None = None  # by name of those that have a quota of their own


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """The last valid spec, as nodes and producers read it.

    Groups 0 .. `active` - 1 take puts; those in `draining` only empty. `revision` is the spec's. `number` is the number
    of earlier accepted changes of the project. The topic of a project that was `deleted` takes no puts, and is paused
    or draining: its backlog is kept until it is drained or dropped.
    """

    topic: Topic
    active: int
    draining: tuple[int, ...] = ()
    revision: int
    number: int = 0
    deleted: bool = False

    @property
    def can_take_puts(self) -> bool:
        return not self.deleted and self.topic.state != "draining"


def parse_spec(raw: bytes) -> TopicSpec:
    """Raises TopicError."""
    return _spec(read_object(raw, MOST_BYTES))


def complete(spec: TopicSpec, limits: ClusterLimits, before: Accepted | None = None) -> Topic:
    """The spec with defaults, as this cluster can carry it out. Raises TopicError.

    An ordered topic keeps its groups and its spread as they were `before`, unless it resumes from draining: with other
    numbers, a key's next messages would overtake those that wait.
    """
    given = spec.given
    kept = before if before is not None and _must_keep_keys(given, before.topic) else None
    groups = _groups(given["qps"], given.get("groups"), limits) if kept is None else _keep_groups(given, limits, kept)
    spread = given.get("spread", max(1, limits.partitions // 10) if kept is None else kept.topic.spread)
    if kept is not None and spread != kept.topic.spread:
        raise TopicError("spread", f"of an ordered topic stays {kept.topic.spread:,} until it is drained{_DRAIN}")
    if spread > limits.partitions:
        raise TopicError("spread", f"must be at most {limits.partitions:,}, the number of partitions, not {spread:,}")
    defaults = {"weight": given["qps"], "burst": default_burst(given["qps"])}
    _check_quotas(given.get("subscriptions") or {}, groups, limits)
    return Topic(**{**defaults, **given, "groups": groups, "spread": spread})


def accept(topic: Topic, revision: int, before: Accepted | None) -> Accepted:
    """The accepted topic to publish after `before`: no group that was ever in use is lost (K6).

    A group that is removed drains first; one that is added again while it drains simply becomes active.
    """
    known = () if before is None else (*range(before.active), *before.draining)
    draining = tuple(sorted({group for group in known if group >= topic.groups}))
    after = Accepted(topic=topic, active=topic.groups, draining=draining, revision=revision)
    return after if before is None else replace(after, number=_next_number(before, after))


def would_move_keys(before: Accepted | None, after: Topic) -> bool:
    """Whether keys of an ordered topic move to other groups than those where their messages may wait. This can happen
    only when the topic resumes from draining, and must be refused as long as any message waits.
    """
    if before is None or not before.topic.ordered:
        return False
    return (after.groups, after.spread) != (before.active, before.topic.spread)


def delete(before: Accepted) -> Accepted:
    """The accepted topic to publish once the spec is gone: no message is thrown away, and none is handled any more
    unless the topic was draining already.
    """
    state: Literal["draining", "paused"] = "draining" if before.topic.state == "draining" else "paused"
    after = replace(before, topic=replace(before.topic, state=state), deleted=True)
    return replace(after, number=_next_number(before, after))


def without(before: Accepted, empty: Collection[int]) -> Accepted | None:
    """The accepted topic to publish once these groups are empty; None if the whole topic can go: it was deleted, and
    all of its groups are empty.
    """
    gone = frozenset(empty)
    draining = tuple(group for group in before.draining if group not in gone)
    if before.deleted and not draining and gone.issuperset(range(before.active)):
        return None
    return replace(before, draining=draining) if len(draining) < len(before.draining) else before


def encode(value: Topic | Accepted) -> bytes:
    """JSON with all fields, always in the same order. Only `subscriptions` is left out where there are none."""
    if isinstance(value, Topic):
        return write_object(_to_fields(value))
    added = {field: getattr(value, field) for field in _ADDED}
    return write_object({**_to_fields(value.topic), **added, "format": ACCEPTED_FORMAT})


def decode_accepted(raw: bytes) -> Accepted:
    """Raises TopicError; NewerTopic for a format that this release doesn't know. Unknown fields are ignored: a newer
    release may have written them.
    """
    read = read_object(raw, _MOST_ACCEPTED_BYTES)
    newest = whole(1, _MOST_REVISION)("format", read.get("format", 1))
    if newest > ACCEPTED_FORMAT:
        raise NewerTopic("format", f"is {newest}, and this release reads only {ACCEPTED_FORMAT}: upgrade this process")
    for field in (*FIELDS, *_ADDED):
        if field not in read and field not in _LATER:
            raise TopicError(field, "is missing")
    topic = Topic(**{field: rule(field, read[field]) for field, rule in FIELDS.items() if field in read})
    return Accepted(
        topic=intern(topic),
        active=whole(1, MOST_GROUPS)("active", read["active"]),
        draining=_parse_draining(read["draining"]),
        revision=whole(1, _MOST_REVISION)("revision", read["revision"]),
        number=whole(0, _MOST_REVISION)("number", read.get("number", 0)),
        deleted=flag("deleted", read.get("deleted", False)),
    )


def merge(old_raw: bytes | None, changes: Mapping[str, object]) -> bytes:
    """The present spec with the given fields changed; None as a value restores the default.

    Of `backoff` and of each entry of `subscriptions`, too, only the given parts change. Raises TopicError, also if
    there was no spec and `qps` isn't given. An error in the present spec does no harm if that field is changed.
    """
    old = {} if old_raw is None else read_object(old_raw, MOST_BYTES)
    named = dict(changes)
    if isinstance(named.get("backoff"), Mapping) and isinstance(old.get("backoff"), Mapping):
        named["backoff"] = {**old["backoff"], **dict(parts("backoff", named["backoff"], BACKOFF))}
    if isinstance(quotas := named.get("subscriptions"), Mapping):
        named["subscriptions"] = merge_quotas(old.get("subscriptions"), quotas)
    merged = _spec({name: value for name, value in {**old, **named}.items() if value is not None})
    ordered = {field: merged.given[field] for field in FIELDS if field in merged.given}
    if "backoff" in ordered:
        ordered["backoff"] = asdict(ordered["backoff"])
    if "subscriptions" in ordered:
        ordered["subscriptions"] = msgspec.to_builtins(ordered["subscriptions"])
    raw = write_object(ordered)
    parse_spec(raw)  # for its size
    return raw


def _spec(read: Mapping[str, object]) -> TopicSpec:
    for name in read:
        if name not in FIELDS:
            raise TopicError(str(name), f"is not a field of a topic: the fields are {', '.join(FIELDS)}")
    if "qps" not in read:
        raise TopicError("qps", "is missing: a topic needs its messages per second")
    return TopicSpec({field: FIELDS[field](field, value) for field, value in read.items()})


def _to_fields(topic: Topic) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(topic)
    if topic.subscriptions is None:
        del fields["subscriptions"]  # so that a topic without them reads as in releases that don't know the field
    return fields


def _check_quotas(quotas: Mapping[str, SubscriptionQuota], groups: int, limits: ClusterLimits) -> None:
    """The highest rate of a group (E3) holds in each subscription: all of them have the topic's groups."""
    most = groups * limits.max_group_qps
    for name, quota in quotas.items():
        if quota.qps is not None and quota.qps / groups > limits.max_group_qps:
            raise TopicError(
                f"subscriptions.{name}.qps",
                f"can be at most {most:,.10g} with the {groups:,} groups of the topic, not {quota.qps:,.10g}",
            )


def _next_number(before: Accepted, after: Accepted) -> int:
    """A spec that changes nothing keeps the number."""
    same = before.topic == after.topic and before.deleted == after.deleted
    return before.number if same else before.number + 1


def _groups(qps: float, given: int | None, limits: ClusterLimits) -> int:
    """The number of groups. qps / groups never exceeds the highest rate of a group (E3)."""
    least = _share_out(qps, limits.max_group_qps)
    groups = max(least, _share_out(qps, limits.group_qps)) if given is None else given
    if groups < least:
        raise TopicError(
            "groups",
            f"must be at least {least:,} for {qps:,.10g} QPS, as one group may have"
            f" at most {limits.max_group_qps:,.10g}, not {groups:,}",
        )
    if groups > MOST_GROUPS:
        raise TopicError("qps", f"must be less than {qps:,.10g}: it would need more than {MOST_GROUPS:,} groups")
    return groups


def intern(topic: Topic) -> Topic:
    """The same object for equal topics: a node keeps tens of thousands, few of which differ."""
    return _intern(topic) if topic.push is None and topic.subscriptions is None else topic


@lru_cache(4096)
def _intern(topic: Topic) -> Topic:
    return topic


def default_burst(qps: float) -> int:
    """10 ms of the rate: a busy node's timer may be this late without costing the topic any of it."""
    return max(1, math.ceil(qps / 100))


_DRAIN = ": drain it, wait until its backlog is empty, and change it as you resume it"


def _must_keep_keys(given: Mapping[str, Any], before: Topic) -> bool:
    comes_back = before.state == "draining" and given.get("state", "active") != "draining"
    return before.ordered and bool(given.get("ordered", False)) and not comes_back


def _keep_groups(given: Mapping[str, Any], limits: ClusterLimits, before: Accepted) -> int:
    groups = before.active
    if given.get("groups", groups) != groups:
        raise TopicError("groups", f"of an ordered topic stay {groups:,} until it is drained{_DRAIN}")
    if given["qps"] / groups > limits.max_group_qps:
        raise TopicError(
            "qps",
            f"of this ordered topic can be at most {groups * limits.max_group_qps:,.10g}, as it keeps its"
            f" {groups:,} groups until it is drained{_DRAIN}",
        )
    return groups


def _share_out(qps: float, most: float) -> int:
    """The smallest number of shares none of which is above `most`; the quotient alone may round down."""
    groups = max(1, math.ceil(qps / most))
    return groups if qps / groups <= most else groups + 1


def _parse_draining(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TopicError("draining", "must be a list of group numbers")
    return tuple(whole(0, MOST_GROUPS)("draining", group) for group in value)

"""Cluster config: settings that all processes of an environment share. The first process writes them to etcd."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

from evenlane.engine.base import names
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName
from evenlane.quota.topics.fields import number, optional, whole
from evenlane.quota.topics.strict_json import TopicError, format_value, read_object, write_object
from evenlane.ring.coordination.ports import Absent, Denied, PutKey
from evenlane.ring.hashing import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.quota.topics.fields import Rule
    from evenlane.ring.coordination.ports import Coordination

_HASHED, _CONSECUTIVE = 1, 2  # format versions: a release that knows only the first one has hashed partitions
_MOST_BYTES = 65_536
_MOST_PRIORITIES = 8


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Cluster-wide settings. Rates are in messages per second; priorities run from most to least urgent."""

    partitions: int = 128
    priorities: tuple[str, ...] = ("high", "mid", "low")
    group_qps: float = 50.0
    max_group_qps: float = 150.0
    max_queue_backlog: int | None = None
    layout: Layout = "hashed"


async def agree_cluster_config(coordination: Coordination, env: str, chosen: Mapping[str, object]) -> ClusterConfig:
    """Return the config of this environment. If etcd has none yet, write one made of `chosen` and the defaults.

    `chosen` holds the values that were set explicitly for this process. Raises ConfigError if one of them is invalid or
    differs from the value in etcd; EvenlaneError if etcd has none and this user may not write it; CoordinationError.
    """
    own = _decode(chosen)
    key = names.key(env, "settings")
    while (stored := await coordination.get(key)) is None:
        try:
            created = await coordination.txn([Absent(key)], [PutKey(key, _write(own))])
        except Denied as error:
            raise EvenlaneError(
                f"{error}: environment {env!r} does not exist, and this user may not create it: start a node first"
            ) from error
        if created.succeeded:
            return own
    agreed = _read(stored.value, key)
    for name in chosen:
        mine, theirs = getattr(own, name), getattr(agreed, name)
        if mine != theirs:
            raise ConfigError(
                f"{name} is {_plain(mine)} here but {_plain(theirs)} in environment {env!r}, as the first"
                f" process wrote it into etcd ({key}): leave it out, set {_plain(theirs)}"
                " or use another environment"
            )
    return agreed


def no_such_environment(env: str) -> EvenlaneError:
    return EvenlaneError(
        f"environment {env!r} does not exist: no process has written its settings into etcd"
        f" ({names.key(env, 'settings')}); `evenlane topics set PROJECT --qps 100 --env {env}` or the first node"
        " creates it"
    )


def _write(config: ClusterConfig) -> bytes:
    """With hashed partitions, releases that don't know the setting can read the environment's settings, too."""
    values = asdict(config)
    if config.layout == "hashed":
        del values["layout"]
    return write_object({**values, "version": _HASHED if config.layout == "hashed" else _CONSECUTIVE})


def _read(raw: bytes, key: str) -> ClusterConfig:
    try:
        stored = read_object(raw, _MOST_BYTES)
        version = whole(1, 10**6)("version", stored.pop("version", None))
        if version == _HASHED:
            return _decode({"layout": "hashed", **stored})
        if version == _CONSECUTIVE:
            return _decode(stored)
    except (TopicError, ConfigError) as error:
        raise ConfigError(f"the settings in etcd ({key}) are corrupted: {error}") from error
    raise ConfigError(
        f"the settings in etcd ({key}) have format version {version}, and this release knows"
        f" {_HASHED} and {_CONSECUTIVE}: run the release that wrote them, or use another environment"
    )


def _decode(values: Mapping[str, object]) -> ClusterConfig:
    for name in values:
        if name not in _RULES:
            raise ConfigError(f"{format_value(name)} is not a setting of a cluster: they are {', '.join(_RULES)}")
    try:
        made = ClusterConfig(**{name: _RULES[name](name, value) for name, value in values.items()})
    except TopicError as error:
        raise ConfigError(str(error)) from error
    if made.group_qps > made.max_group_qps:
        raise ConfigError(f"group_qps must be at most max_group_qps, {made.max_group_qps:g}, not {made.group_qps:g}")
    return made


def _plain(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else format_value(value)


def _priorities(field: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= _MOST_PRIORITIES:
        raise TopicError(field, f"must be 1 to {_MOST_PRIORITIES} names, not {format_value(value)}")
    try:
        listed = tuple(map(names.check_priority_name, value))
    except InvalidName as error:
        raise TopicError(field, f"must be valid names: {error}") from error
    if len(set(listed)) < len(listed):
        raise TopicError(field, f"must differ from one another, not {', '.join(listed)}")
    return listed


def _layout(field: str, value: object) -> str:
    if value not in get_args(Layout):
        raise TopicError(field, f"must be one of {', '.join(get_args(Layout))}, not {format_value(value)}")
    return str(value)


_RULES: Mapping[str, Rule] = {
    "partitions": whole(1, 65_536),
    "priorities": _priorities,
    "group_qps": number(0.01, 1e9),
    "max_group_qps": number(0.01, 1e9),
    "max_queue_backlog": optional(whole(1, 2**53)),
    "layout": _layout,
}

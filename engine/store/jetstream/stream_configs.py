"""The configs of the streams, as the first process that needs them creates them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.store.jetstream.api import queue_limit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.base.names import LaneId

_SECOND = 1_000_000_000
_BUSY_KEPT_S = 86_400

# Settings that must be as we create them: any other value loses messages, or lets a publisher do so.
SACRED = {
    "retention": "limits",  # work-queue streams would delete messages that aren't settled
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "discard": "new",
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
}


def lane_config(
    env: str, lane: LaneId, storage: str, replicas: int, window_s: float, limit: int | None = None
) -> dict[str, Any]:
    """The config of a lane's stream. The duplicate window is the producer's total retry time. `limit` is the most
    messages per queue (-1: unlimited, None: unknown here); delay streams have no limit, because a retry must never be
    refused.
    """
    depth = ".*.*.*" if lane.kind == "lanes" else ".*.*.*.*"
    limited = lane.kind == "lanes" and limit is not None
    return {
        "name": names.stream(env, lane),
        "subjects": [f"{lane.kind}.{env}.{lane.partition}{depth}"],
        "storage": storage,
        "num_replicas": replicas,
        "duplicate_window": int(window_s * _SECOND),
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
        **(queue_limit.settings(limit) if limited and limit is not None else {}),
    }


def dead_config(cluster: str, storage: str, replicas: int, window_s: float, keep_s: float) -> dict[str, Any]:
    """The config of the dead letters' stream. The server removes dead letters by itself after `keep_s`."""
    return {
        "name": names.dead_stream(cluster),
        "subjects": [f"dead.{cluster}.*"],
        "storage": storage,
        "num_replicas": replicas,
        "duplicate_window": int(window_s * _SECOND),
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
        "max_age": int(keep_s * _SECOND),
    }


def again_config(cluster: str, storage: str, replicas: int, window_s: float) -> dict[str, Any]:
    """The config of the stream of a named subscription's retries and replays, which is like that of a delay stream."""
    return {
        "name": names.again_stream(cluster),
        "subjects": [f"again.{cluster}.*.*.*.*.*"],
        "storage": storage,
        "num_replicas": replicas,
        "duplicate_window": int(window_s * _SECOND),
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
    }


def settled_config(cluster: str, storage: str, replicas: int) -> dict[str, Any]:
    """The config of the settle log's stream. A checkpoint replaces all earlier records, by rollup of its subject."""
    return {
        "name": names.settled_stream(cluster),
        "subjects": [f"settled.{cluster}.*.*"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
        "allow_rollup_hdrs": True,
    }


def probe_config(env: str, storage: str, replicas: int, size: int) -> dict[str, Any]:
    """The config of a stream that is created and deleted to find out whether there are `size` bytes of storage."""
    return {
        "name": names.probe_stream(env),
        "subjects": [f"retain.{env}"],
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": size,
    }


def busy_config(env: str, storage: str, replicas: int) -> dict[str, Any]:
    """The config of the stream of in-flight records: the last record of each process. Records of dead processes are
    read at once or never.
    """
    return {
        "name": names.busy_stream(env),
        "subjects": [f"busy.{env}.*"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
        "discard": "old",
        "max_msgs_per_subject": 1,
        "max_age": _BUSY_KEPT_S * _SECOND,
    }


def meter_config(cluster: str, storage: str, replicas: int, keep_s: float) -> dict[str, Any]:
    """The config of the stream of metering records. Operators may set other limits: reports use what is there."""
    return {
        "name": names.meter_stream(cluster),
        "subjects": [f"meter.{cluster}.>"],
        "storage": storage,
        "num_replicas": replicas,
        "allow_direct": True,
        "max_consumers": -1,
        **SACRED,
        "discard": "old",
        "max_age": int(keep_s * _SECOND),
    }


class StreamConfigs(NamedTuple):
    """The configs of all streams that a cluster uses. `window_s` is the duplicate window, `keep_s` and `meter_keep_s`
    are the retention of dead letters and of metering records (s).
    """

    cluster: str
    storage: str
    replicas: int
    window_s: float
    keep_s: float
    meter_keep_s: float

    def list_shared(self, lanes: Sequence[LaneId], limit: int | None) -> list[dict[str, Any]]:
        """Those that all clusters of the environment use, with those of `lanes`. `limit`: see `lane_config`."""
        env = names.env_of(self.cluster)
        shared = [
            lane_config(env, lane, self.storage, self.replicas, self.window_s, limit)
            for lane in lanes
            if lane.kind in ("lanes", "later")
        ]
        return [*shared, busy_config(env, self.storage, self.replicas)]

    def adapt(self, present: Mapping[str, Mapping[str, Any]]) -> StreamConfigs:
        """These configs with the settings of the unnamed subscription's streams, as far as they are among those that
        are `present`: the creator of a subscription may have other settings than the nodes.
        """
        env = names.env_of(self.cluster)
        log, dead, meter = (
            present.get(name(env), {}) for name in (names.settled_stream, names.dead_stream, names.meter_stream)
        )
        return self._replace(
            storage=log.get("storage", self.storage),
            replicas=log.get("num_replicas", self.replicas),
            window_s=dead.get("duplicate_window", self.window_s * _SECOND) / _SECOND,
            keep_s=dead.get("max_age", self.keep_s * _SECOND) / _SECOND,
            meter_keep_s=meter.get("max_age", self.meter_keep_s * _SECOND) / _SECOND,
        )

    def list_own(self) -> list[dict[str, Any]]:
        """Those that no other cluster uses."""
        cluster, storage, replicas = self.cluster, self.storage, self.replicas
        again = [again_config(cluster, storage, replicas, self.window_s)] if names.subscription_of(cluster) else []
        return [
            settled_config(cluster, storage, replicas),
            *again,
            dead_config(cluster, storage, replicas, self.window_s, self.keep_s),
            meter_config(cluster, storage, replicas, self.meter_keep_s),
        ]

"""Settings that are set together or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PAIRS = (
    ("http_cert", "http_key"),
    ("nats_user", "nats_password_file"),
    ("nats_cert", "nats_key"),
    ("etcd_user", "etcd_password_file"),
    ("etcd_cert", "etcd_key"),
)


def check_pairs(given: Mapping[str, object], origins: Mapping[str, str]) -> None:
    """Raise ConfigError if one setting of a pair is `given`, and the other isn't; or if an autoscaler could read
    nothing. `origins` has the source of each.
    """
    if given.get("scaling") == "hpa" and given.get("http_port") is None:
        raise ConfigError(
            f"scaling ({origins['scaling']}): hpa needs http_port, as the autoscaler reads the number of nodes from the"
            " metrics"
        )
    for pair in _PAIRS:
        there = [key for key in pair if given.get(key) is not None]
        if len(there) == 1:
            [missing] = set(pair) - set(there)
            raise ConfigError(f"{there[0]} ({origins[there[0]]}): is set without {missing}; set both or neither")

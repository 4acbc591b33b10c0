"""Settings of scaling: how many nodes there should be, and what changes their number (docs/how-to/scale-nodes.md)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from evenlane.engine.base.config import values
from evenlane.engine.base.durations import format_duration, parse_duration
from evenlane.engine.errors import ConfigError

Scaling = Literal["off", "leader", "keda", "hpa"]
ScalingPolicy = Literal["rules", "need"]

_TARGET = re.compile(r"p([0-9]{2}(?:\.[0-9]{1,4})?) +wait +(\S+)", re.ASCII)
_LEAST_PERCENT, _LEAST_S, _MOST_S = 50, 0.001, 86_400


class WaitTarget(NamedTuple):
    """This percentage of the messages should wait for a slot for `wait_s` seconds at most."""

    percent: float
    wait_s: float


def parse_target(text: str) -> WaitTarget:
    """Parse `p99 wait 2s`. Raises ValueError."""
    match = _TARGET.fullmatch(text.strip())
    try:
        found = None if match is None else WaitTarget(float(match[1]), parse_duration(match[2]))
    except ConfigError:
        found = None
    if found is None or found.percent < _LEAST_PERCENT or not _LEAST_S <= found.wait_s <= _MOST_S:
        raise ValueError(
            f"{values.format_value(text)} is not a target: write p99 wait 2s, with p50 to p99.9999 and 1ms to 1d"
        )
    return found


def wait_target(value: object) -> str:
    found = parse_target(values.text(value))
    return f"p{found.percent:g} wait {format_duration(found.wait_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingSettings:
    """The part of `Settings` about scaling. All nodes should have the same."""

    # ---- Scaling: use the same on all nodes
    scaling: Annotated[Scaling, values.choice(*get_args(Scaling))] = "off"
    """What changes the number of nodes: the leader, a ScaledObject of KEDA, or a HorizontalPodAutoscaler. If two nodes
    have different ones, none of them does. `off`: nothing does.
    """
    scaling_policy: Annotated[ScalingPolicy, values.choice(*get_args(ScalingPolicy))] = "rules"
    """How the number is decided: by thresholds, or by the slots that waiting messages need."""
    scaling_target: Annotated[str | None, wait_target] = None
    """The target of the policy `need`: how long messages may wait for a slot."""
    scaling_recovery: Annotated[float, values.duration(1, 86_400)] = 60.0
    """How soon messages that wait for slots should be gone once the policy `need` has added nodes."""
    scaling_cpu: Annotated[float, values.share] = 0.9
    """The CPU of a node, as a share of what its container may use, above which a node is added. `0%`: CPU doesn't
    count.
    """
    scaling_projects_above: Annotated[float, values.number(0, 1e6)] = 50.0
    """The mean number of projects per node above which the policy `rules` adds one. 0: never."""
    scaling_projects_below: Annotated[float, values.number(0, 1e6)] = 2.0
    """The mean number of projects per node below which the policy `rules` removes one. 0: never."""
    scaling_min: Annotated[int, values.whole(1, 10_000)] = 2
    """The least number of nodes."""
    scaling_max: Annotated[int, values.whole(1, 10_000)] = 100
    """The greatest number of nodes. More nodes than partitions are never asked for."""
    scaling_interval: Annotated[float, values.duration(1, 3_600)] = 30.0
    """The time between two looks of the leader."""
    scaling_rest: Annotated[float, values.duration(0, 86_400)] = 600.0
    """How long nothing changes after a change. The policy `need` adds nodes meanwhile, but removes none."""
    scaling_deployment: Annotated[str | None, values.kubernetes_name] = None
    """The Deployment of the nodes, for `scaling` = `leader`."""
    scaling_namespace: Annotated[str | None, values.kubernetes_name] = None
    """The namespace of that Deployment. Not set: the one of the pod's service account."""
    scaling_api: Annotated[str | None, values.https_url] = None
    """The address of the Kubernetes API. Not set: the one that Kubernetes tells its pods."""
    scaling_token_file: Annotated[Path | None, values.file] = None
    """A file with the token for the Kubernetes API. Not set: the one of the pod's service account."""
    scaling_ca: Annotated[Path | None, values.file] = None
    """The certificate authority of the Kubernetes API. Not set: the one of the pod's service account."""
    scaling_listen: Annotated[str, values.listen_address] = "127.0.0.1:6000"
    """The address on which a node serves KEDA, for `scaling` = `keda`. Port 0: any free one."""


def check_scaling(settings: ScalingSettings, origins: Mapping[str, str]) -> None:
    """Check settings that depend on one another. Raises ConfigError, which names key and origin."""
    for key, problem in _problems(settings):
        raise ConfigError(f"{key} ({origins[key]}): {problem}")


def _problems(of: ScalingSettings) -> list[tuple[str, str]]:
    above, below = of.scaling_projects_above, of.scaling_projects_below
    checks = (
        (
            of.scaling_min > of.scaling_max,
            "scaling_min", f"{of.scaling_min} is above scaling_max, which is {of.scaling_max}",
        ),
        (
            of.scaling_policy == "need" and of.scaling_target is None,
            "scaling_policy", "need has no target: set scaling_target, such as 'p99 wait 2s'",
        ),
        (
            of.scaling_policy == "rules" and of.scaling_target is not None,
            "scaling_target", "the policy rules has no target: leave it out, or set scaling_policy to need",
        ),
        (
            of.scaling_policy == "rules" and not (of.scaling_cpu or above or below),
            "scaling_policy", "rules has no metric: set scaling_cpu, scaling_projects_above or scaling_projects_below",
        ),
        (
            bool(above and below) and below >= above,
            "scaling_projects_below", f"{below:g} is not below scaling_projects_above, which is {above:g}",
        ),
        (
            of.scaling == "leader" and of.scaling_deployment is None,
            "scaling", "leader needs the name of the nodes' Deployment: set scaling_deployment",
        ),
    )  # fmt: skip
    return [(key, problem) for is_wrong, key, problem in checks if is_wrong]

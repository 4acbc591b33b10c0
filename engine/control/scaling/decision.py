"""Decides the number of nodes: a policy's proposal, within bounds and with its rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.plural import format_count
from evenlane.engine.control.scaling import need, rules
from evenlane.engine.control.scaling.policy import Rules

if TYPE_CHECKING:
    from evenlane.engine.control.scaling.policy import Bounds, Observation, Policy, Proposal

_SWITCHED_OFF = "0 nodes are asked for, which switches scaling off until somebody asks for one or more"


class ScalingState(NamedTuple):
    """What a decision remembers of earlier ones. Times are in s, of the caller's clock.

    `changed_at` is the time of the last change, None if there was none. `low_since` is since when fewer nodes have been
    enough, None if they aren't; `low_most` is the greatest number that was enough meanwhile. `replicas` is the number
    that was last asked for.

    `attempt` is a number that a leader wanted to ask for after that, at `attempted_at`. Whether it has done so isn't
    known, as it may have died before. The other fields don't count it.
    """

    changed_at: float | None = None
    low_since: float | None = None
    low_most: int = 0
    replicas: int | None = None
    attempt: int | None = None
    attempted_at: float = 0.0


class Decision(NamedTuple):
    """The number of replicas to ask for, the reason as a clause, and what to remember for the next decision."""

    replicas: int
    why: str
    state: ScalingState


def decide(policy: Policy, bounds: Bounds, seen: Observation, state: ScalingState, now: float) -> Decision:
    """Decide at `now`. A number outside the bounds is corrected at once, without a rest before it. 0 replicas stay
    0, as with a HorizontalPodAutoscaler: somebody has switched the nodes off.

    With either policy, a removal comes `rest_s` after the last change at the earliest. So a removal never takes back
    what was added less than that before. A change that somebody else has made counts as one.
    """
    if not seen.replicas:
        return Decision(0, _SWITCHED_OFF, ScalingState(changed_at=now, replicas=0))
    state = note_present(state, seen.replicas, now)
    most = max(bounds.least, min(bounds.most, seen.partitions))
    if not bounds.least <= seen.replicas <= most:
        replicas = max(bounds.least, min(most, seen.replicas))
        return _change(
            replicas,
            f"{format_count(seen.replicas, 'node', 'is', 'are')} outside the bounds, {bounds.least} to {most}",
            now,
        )
    if isinstance(policy, Rules):
        return _by_rules(rules.propose(policy, seen), bounds, most, seen.replicas, state, now)
    return _by_need(need.propose(policy, seen, most), bounds, seen.replicas, state, now)


def _by_rules(proposal: Proposal, bounds: Bounds, most: int, present: int, state: ScalingState, now: float) -> Decision:
    replicas = proposal.up if proposal.up > present else proposal.down
    if replicas == present:
        return _keep(present, proposal.why, state)
    if not bounds.least <= replicas <= most:
        which = "scaling_max or the number of partitions" if replicas > most else "scaling_min"
        return _keep(present, f"{proposal.why}; but {present} is {which}", state)
    if left := _rest_left(state.changed_at, bounds.rest_s, now):
        return _keep(present, f"{proposal.why}; it rests for another {format_duration(round(left))}", state)
    return _change(replicas, proposal.why, now)


def _by_need(proposal: Proposal, bounds: Bounds, present: int, state: ScalingState, now: float) -> Decision:
    if proposal.up > present:
        return _change(proposal.up, proposal.why, now)
    enough = max(bounds.least, proposal.down)
    if enough >= present:
        return _keep(present, proposal.why, state._replace(low_since=None, low_most=0))
    since, most = (now, enough) if state.low_since is None else (state.low_since, max(state.low_most, enough))
    left = max(_rest_left(since, bounds.rest_s, now), _rest_left(state.changed_at, bounds.rest_s, now))
    if left:
        rests = f"{enough} would do, and are enough if that stays so for another {format_duration(round(left))}"
        return _keep(present, f"{proposal.why}; {rests}", state._replace(low_since=since, low_most=most))
    return _change(min(most, present), proposal.why, now)


def _rest_left(since: float | None, rest_s: float, now: float) -> float:
    """Return the seconds until the rest ends."""
    return 0.0 if since is None else max(0.0, rest_s - (now - since))


def note_present(state: ScalingState, present: int, now: float) -> ScalingState:
    """Note the number of replicas that is asked for now: it says whether an attempt has succeeded, and whether somebody
    else has changed it. A time in the future is another leader's clock, and becomes `now`.
    """
    if state.attempt == present:
        return ScalingState(changed_at=min(state.attempted_at, now), replicas=present)
    if state.replicas is not None and state.replicas != present:
        return ScalingState(changed_at=now, replicas=present)
    changed, low = (None if at is None else min(at, now) for at in (state.changed_at, state.low_since))
    return state._replace(changed_at=changed, low_since=low, attempt=None, attempted_at=0.0)


def _keep(present: int, why: str, state: ScalingState) -> Decision:
    return Decision(present, why, state._replace(replicas=present))


def _change(replicas: int, why: str, now: float) -> Decision:
    return Decision(replicas, why, ScalingState(changed_at=now, replicas=replicas))

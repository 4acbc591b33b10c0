"""A node that is started for a named subscription."""

from typing import Any

import pytest

from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, Subscription, registry_key
from evenlane.engine.errors import EvenlaneError
from evenlane.ring.membership.records import encode
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.virtual_time import run_virtually

_EPOCH = 1_790_000_000 * SECOND


def _refused(registry: RegistryRecord | None) -> str:
    """The sentence with which a node for `audit` ends."""
    said: list[str] = []

    async def main(loop: Any) -> None:
        async with VirtualCluster(loop, _EPOCH) as cluster:
            if registry is not None:
                await cluster.coordination().put(registry_key("online"), encode(registry))
            with pytest.raises(EvenlaneError) as failed:
                await cluster.start("a1", subscription="audit")
            said.append(str(failed.value))
            listing = await cluster.coordination().list("/evenlane/online/subscription/")
            assert not listing.items
            cluster.nodes.clear()

    run_virtually(main)
    return said[0]


def test_subscription_that_isnt_there() -> None:
    """K10: the sentence lists those that are there; the node leaves nothing behind."""
    lost = "if etcd has lost it, `evenlane subscriptions create audit --env online` restores it"
    there = "environment 'online' has no subscription 'audit': there is only the one without a name"
    assert _refused(None) == f"{there}; {lost}"
    others = {name: Subscription(state="active") for name in ("mail", "bill")}
    there = "environment 'online' has no subscription 'audit': there are bill, mail, and the one without a name"
    assert _refused(RegistryRecord(subscriptions=others)) == f"{there}; {lost}"


@pytest.mark.parametrize(("state", "verb"), [("creating", "create"), ("deleting", "delete")])
def test_subscription_that_isnt_ready(state: Any, verb: str) -> None:
    """K10: a creation or deletion that was broken off is named, with the command that completes it."""
    said = _refused(RegistryRecord(subscriptions={"audit": Subscription(state=state)}))
    ends = f"`evenlane subscriptions {verb} audit --env online` completes that"
    assert said == f"subscription 'audit' of environment 'online' is being {verb}d: {ends}"


def test_registry_that_cant_be_read() -> None:
    """K10: a value that somebody else has written isn't guessed at."""
    said = _refused(RegistryRecord(subscriptions={"au_dit": Subscription(state="active")}))
    assert said == "the subscriptions in etcd (/evenlane/online/subscriptions) can't be read"


def test_streams_that_are_missing() -> None:
    """K10: a node doesn't create its subscription's streams, which may have been deleted with it."""
    said = _refused(RegistryRecord(subscriptions={"audit": Subscription(state="active")}))
    anew = "`evenlane subscriptions create audit --env online` recreates it"
    assert said == f"stream SETTLED_online_audit of subscription 'audit' is missing: {anew}"

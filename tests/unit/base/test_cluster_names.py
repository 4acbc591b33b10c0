"""The names of a subscription's cluster: which streams, subjects and keys are its own, and which are shared (K10)."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.config.settings import Settings, load
from evenlane.engine.base.names import BUSY, DEAD, LaneId
from evenlane.engine.errors import ConfigError

_LANE = LaneId("lanes", 5)


def test_unnamed_subscription_has_the_environments_names() -> None:
    """K10: without a named subscription, all names are those of releases that know none."""
    cluster = names.cluster_name("online")
    assert cluster == "online"
    assert names.key(cluster, "owners", 5) == "/evenlane/online/owners/5"
    assert names.other_streams(cluster) == ("DEAD_online", "BUSY_online", "SETTLED_online", "METER_online")
    assert names.settled_subject(cluster, _LANE) == "settled.online.lanes.5"


def test_named_subscription_shares_the_messages_and_has_the_rest_for_itself() -> None:
    """K10: messages are stored once; settle logs, dead letters and records are of one subscription."""
    cluster = names.cluster_name("online", "audit")
    assert (names.env_of(cluster), names.subscription_of(cluster)) == ("online", "audit")
    assert names.stream(cluster, _LANE) == "LANES_online_5"
    assert names.stream(cluster, LaneId("later", 5)) == "LATER_online_5"
    assert names.stream(cluster, BUSY) == "BUSY_online"
    assert names.stream(cluster, DEAD) == "DEAD_online_audit"
    assert names.settled_stream(cluster) == "SETTLED_online_audit"
    assert names.stream(cluster, LaneId("again", 5)) == "AGAIN_online_audit"
    assert names.meter_stream(cluster) == "METER_online_audit"
    assert names.key(cluster, "owners", 5) == "/evenlane/online/subscription/audit/owners/5"


def test_retries_of_a_named_subscription_have_a_stream_of_their_own() -> None:
    """K10: of all partitions; those of the unnamed subscription stay in its delay streams."""
    subject = names.retry_subject("online_audit", 5, "acme", 0, "mid", 497_222)
    assert subject == "again.online_audit.5.acme.0.mid.497222"
    assert names.stream_of(subject) == "AGAIN_online_audit"
    assert subject.startswith(names.lane_prefix("online_audit", LaneId("again", 5)))
    assert names.settled_subject("online_audit", LaneId("again", 5)) == "settled.online_audit.again.5"
    unnamed = names.retry_subject("online", 5, "acme", 0, "mid", 497_222)
    assert unnamed == names.later_subject("online", 5, "acme", 0, "mid", 497_222)


def test_own_streams_are_those_of_a_named_subscription() -> None:
    """K10: they are created and deleted with it, and with no other."""
    own = ("SETTLED_online_audit", "AGAIN_online_audit", "DEAD_online_audit", "METER_online_audit")
    assert names.own_streams("online_audit") == own
    assert set(own) == {*names.other_streams("online_audit")} - {"BUSY_online"}
    assert names.own_streams("online") == ()


@pytest.mark.parametrize("name", ["au_dit", "", "a" * 65, "-a", "a.b", "a/b", "ä"])
def test_name_that_could_be_taken_for_another_is_refused(name: str) -> None:
    """K10: a name that isn't valid is one sentence. With `_` in it, a cluster's name could mean two clusters."""
    with pytest.raises(ConfigError, match=r"^subscription \(flag --subscription\): "):
        load({"subscription": name}, {})


def test_settings_name_the_cluster() -> None:
    """K10: a node's settings say for which subscription it works."""
    assert Settings(env="online").cluster == "online"
    assert Settings(env="online", subscription="audit").cluster == "online_audit"

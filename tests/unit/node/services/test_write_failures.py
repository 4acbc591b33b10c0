"""F5: what streams that can't be written mean for a node's work, and what is said of it."""

import pytest

from evenlane.engine.core.ports import Unwritable
from evenlane.engine.node.services.write_failures import Began, Ended, WriteFailures

SECOND = 1_000_000_000
LOG = "SETTLED_online"
STREAMS = [LOG, "BUSY_online", "LANES_online_0", "LANES_online_1", "LATER_online_0"]
FULL = Unwritable("the server can't write: no space left on its disk", restart=True)
QUOTA = Unwritable("the server takes no more: the account's storage quota is used up")


@pytest.fixture
def failures():
    return WriteFailures(LOG)


def test_where_all_can_be_written_nothing_is_said(failures):
    assert ([], []) == failures.look(STREAMS, {}, 0)
    assert ("", True) == (failures.sentence, failures.settles)


def test_a_stream_begins_once_and_ends_once(failures):
    """One line each, however often it is looked at."""
    assert ([Began("LANES_online_0", FULL)], []) == failures.look(STREAMS, {"LANES_online_0": FULL}, 2 * SECOND)
    assert ([], []) == failures.look(STREAMS, {"LANES_online_0": FULL}, 4 * SECOND)
    assert ([], [Ended("LANES_online_0", 5.0)]) == failures.look(STREAMS, {}, 7 * SECOND)
    assert ([], []) == failures.look(STREAMS, {}, 8 * SECOND)
    assert "" == failures.sentence


def test_what_may_pass_by_itself_counts_from_the_second_look_on(failures):
    """A rolling restart of NATS elects leaders: that is no line for each of 256 streams."""
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, 0)
    assert ("", True) == (failures.sentence, failures.settles)
    assert ([], []) == failures.look(STREAMS, {}, SECOND)
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, 2 * SECOND)
    assert ([Began(LOG, QUOTA)], []) == failures.look(STREAMS, {LOG: QUOTA}, 3 * SECOND)
    assert not failures.settles
    assert ([], [Ended(LOG, 1.0)]) == failures.look(STREAMS, {}, 4 * SECOND)


def test_another_reason_is_no_other_beginning(failures):
    failures.look(STREAMS, {LOG: FULL}, 0)
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, SECOND)
    assert QUOTA.why in failures.sentence


def test_a_stream_that_goes_to_another_node_has_not_ended(failures):
    failures.look(STREAMS, {"LANES_online_1": FULL}, 0)
    rest = [stream for stream in STREAMS if stream != "LANES_online_1"]
    assert ([], []) == failures.look(rest, {}, SECOND)
    assert ([Began("LANES_online_1", FULL)], []) == failures.look(STREAMS, {"LANES_online_1": FULL}, 2 * SECOND)


def test_one_stream_of_many_is_no_reason_to_settle_nothing(failures):
    failures.look(STREAMS, {"LANES_online_1": FULL}, 0)
    assert failures.settles
    assert (
        "can't write all of its streams: the server can't write: no space left on its disk"
        " (LANES_online_1 of 5 streams); once there is room, nats-server must be restarted"
    ) == failures.sentence


def test_without_the_settle_log_nothing_can_be_settled(failures):
    for now in range(2):
        failures.look(STREAMS, dict.fromkeys(STREAMS, QUOTA), now)
    assert not failures.settles
    assert (
        "can't settle: the server takes no more: the account's storage quota is used up"
        " (SETTLED_online, BUSY_online and 3 more of 5 streams)"
    ) == failures.sentence


def test_the_settle_logs_reason_comes_first_else_the_most_frequent(failures):
    lanes = {"LANES_online_0": FULL, "LANES_online_1": FULL, "BUSY_online": QUOTA}
    failures.look(STREAMS, lanes, 0)
    assert FULL.why in failures.sentence
    for now in range(2):
        failures.look(STREAMS, lanes | {LOG: QUOTA}, now)
    assert QUOTA.why in failures.sentence
    assert "must be restarted" in failures.sentence, "two of them need it"

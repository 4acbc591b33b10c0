"""F5: the effect of streams that can't be written on a node, and the description of it."""

import pytest

from evenlane.engine.core.ports import Unwritable
from evenlane.engine.node.services.write_failures import FailureBegan, FailureEnded, WriteFailures

SECOND = 1_000_000_000
LOG = "SETTLED_online"
STREAMS = [LOG, "BUSY_online", "LANES_online_0", "LANES_online_1", "LATER_online_0"]
FULL = Unwritable("the server can't write: no space left on its disk", restart=True)
QUOTA = Unwritable("the server takes no more: the account's storage quota is used up")


@pytest.fixture
def failures():
    return WriteFailures(LOG)


def test_writable_streams_have_no_description(failures):
    assert ([], []) == failures.look(STREAMS, {}, 0)
    assert ("", True) == (failures.sentence, failures.can_settle)


def test_failure_begins_once_and_ends_once(failures):
    assert ([FailureBegan("LANES_online_0", FULL)], []) == failures.look(STREAMS, {"LANES_online_0": FULL}, 2 * SECOND)
    assert ([], []) == failures.look(STREAMS, {"LANES_online_0": FULL}, 4 * SECOND)
    assert ([], [FailureEnded("LANES_online_0", 5.0)]) == failures.look(STREAMS, {}, 7 * SECOND)
    assert ([], []) == failures.look(STREAMS, {}, 8 * SECOND)
    assert "" == failures.sentence


def test_transient_failure_begins_at_the_second_look(failures):
    """A rolling restart of NATS elects leaders, which must not log a line for each of 256 streams."""
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, 0)
    assert ("", True) == (failures.sentence, failures.can_settle)
    assert ([], []) == failures.look(STREAMS, {}, SECOND)
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, 2 * SECOND)
    assert ([FailureBegan(LOG, QUOTA)], []) == failures.look(STREAMS, {LOG: QUOTA}, 3 * SECOND)
    assert not failures.can_settle
    assert ([], [FailureEnded(LOG, 1.0)]) == failures.look(STREAMS, {}, 4 * SECOND)


def test_changed_reason_begins_no_failure(failures):
    failures.look(STREAMS, {LOG: FULL}, 0)
    assert ([], []) == failures.look(STREAMS, {LOG: QUOTA}, SECOND)
    assert QUOTA.why in failures.sentence


def test_released_stream_does_not_end_its_failure(failures):
    failures.look(STREAMS, {"LANES_online_1": FULL}, 0)
    rest = [stream for stream in STREAMS if stream != "LANES_online_1"]
    assert ([], []) == failures.look(rest, {}, SECOND)
    assert ([FailureBegan("LANES_online_1", FULL)], []) == failures.look(STREAMS, {"LANES_online_1": FULL}, 2 * SECOND)


def test_node_settles_with_one_failed_stream(failures):
    failures.look(STREAMS, {"LANES_online_1": FULL}, 0)
    assert failures.can_settle
    assert (
        "can't write all of its streams: the server can't write: no space left on its disk"
        " (LANES_online_1 of 5 streams); once there is room, nats-server must be restarted"
    ) == failures.sentence


def test_node_does_not_settle_without_its_settle_log(failures):
    for now in range(2):
        failures.look(STREAMS, dict.fromkeys(STREAMS, QUOTA), now)
    assert not failures.can_settle
    assert (
        "can't settle: the server takes no more: the account's storage quota is used up"
        " (SETTLED_online, BUSY_online and 3 more of 5 streams)"
    ) == failures.sentence


def test_description_prefers_the_reason_of_the_settle_log(failures):
    """Otherwise it has the most frequent reason."""
    lanes = {"LANES_online_0": FULL, "LANES_online_1": FULL, "BUSY_online": QUOTA}
    failures.look(STREAMS, lanes, 0)
    assert FULL.why in failures.sentence
    for now in range(2):
        failures.look(STREAMS, lanes | {LOG: QUOTA}, now)
    assert QUOTA.why in failures.sentence
    assert "must be restarted" in failures.sentence, "two of them need it"

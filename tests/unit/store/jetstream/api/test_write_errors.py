"""F5: nats-server's disk errors as sentences. The texts are those of nats-server 2.15.1."""

import pytest

from evenlane.engine.core.ports import Full, Unwritable
from evenlane.engine.store.jetstream.api import write_errors
from evenlane.engine.store.jetstream.api.values import PubAck, PubError
from evenlane.engine.store.jetstream.publishing.acknowledgements import read_ack

FILE = "write /data/jetstream/$G/streams/LANES_online_3/msgs/1.blk: "


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("no space left on device", "no space left on its disk"),
        ("disk quota exceeded", "the quota of its disk is used up"),
        ("read-only file system", "its disk is read-only"),
        ("file too large", "a file has reached the size that its system allows"),
        ("permission denied", "it may not write its files"),
        ("input/output error", "its disk fails"),
        ("something new", "something new"),
        ("x" * 500, "x" * 120),
        ("", "it doesn't say why"),
    ],
)
def test_write_error_becomes_sentence_without_path(theirs, ours):
    found = write_errors.of_deletion(10057, FILE + theirs)
    assert Unwritable(f"the server can't write: {ours}", restart=True) == found


def test_system_error_is_recognised_whatever_operation_failed():
    found = write_errors.of_deletion(10057, "open /data/2.blk: read-only file system")
    assert Unwritable("the server can't write: its disk is read-only", restart=True) == found


@pytest.mark.parametrize(
    ("code", "text"),
    [(10057, "stream store EOF"), (10057, "of a later release"),
     (10057, "no message found"), (10037, "no message found"), (10059, "stream not found"),
     (0, "")],
)  # fmt: skip
def test_missing_message_means_stream_is_writable(code, text):
    assert write_errors.of_deletion(code, text) is None


@pytest.mark.parametrize(
    ("code", "text", "ours"),
    [
        (10118, "stream is offline", "the server has it offline: stream is offline"),
        (10194, "stream is offline: unsupported api level", "the server has it offline: unsupported api level"),
        (
            10008,
            "JetStream system temporarily unavailable",
            "it has no leader, as too few of its servers answer or can write",
        ),
        (10039, "JetStream not enabled for account", "JetStream is switched off"),
    ],
)
def test_other_causes_need_no_restart(code, text, ours):
    assert Unwritable(ours, restart=False) == write_errors.of_deletion(code, text)


@pytest.mark.parametrize(
    ("code", "text", "ours"),
    [
        (10002, "resource limits exceeded for account", "the account's storage quota is used up"),
        (10023, "insufficient resources", "the storage that the server gives JetStream is used up"),
    ],
)
def test_used_up_quota_is_reported_as_full(code, text, ours):
    """A put raises it, and the stream counts as unwritable."""
    noted: list[PubAck] = []
    body = b'{"error":{"code":400,"err_code":%d,"description":"%b"},"stream":"A","seq":0}' % (code, text.encode())
    with pytest.raises(Full, match=f"^the server takes no more: {ours}$"):
        read_ack(b"", body, noted.append)
    assert Unwritable(f"the server takes no more: {ours}") == write_errors.of_refusal(noted[0])


def test_refusal_of_message_says_nothing_about_stream():
    assert write_errors.of_refusal(PubAck("A", error=PubError(10054))) is None
    assert write_errors.of_refusal(PubAck("A", error=PubError(10071))) is None


@pytest.mark.parametrize(
    ("limit", "used", "full"),
    [
        (-1, 10**12, False),
        (0, 10**12, False),
        (100_000, 95_904, False),
        (100_000, 95_905, True),
        (100_000, 200_000, True),
    ],
)
def test_account_is_full_without_room_for_message(limit, used, full):
    found = write_errors.of_account({"limits": {"max_storage": limit}, "storage": used}, 4096)
    assert (Unwritable("the server takes no more: the account's storage quota is used up") if full else None) == found


@pytest.mark.parametrize("info", [{}, {"limits": None}, {"limits": {"max_storage": "x"}, "storage": 1}, {"limits": []}])
def test_malformed_account_info_is_ignored(info):
    assert write_errors.of_account(info, 4096) is None

"""`evenlane streams retain` on real servers (K10)."""

import json

import pytest

pytestmark = pytest.mark.real


def test_retention_is_set_shown_and_ended(env, transcript):
    transcript("streams", "retain")
    transcript("streams", "retain", "24h", "--bytes", "200MiB")
    transcript("streams", "retain")
    transcript("streams", "retain", "--json")
    transcript("streams", "retain", "90m", "--bytes", "1000")
    transcript("streams", "retain", "off")
    transcript("streams", "retain", "off", "--json")
    transcript.check()


def test_wrong_use_is_one_sentence(env, transcript, evenlane):
    """K10: nothing is changed."""
    transcript.fail("""
        streams retain soon
        streams retain 0.5s
        streams retain 400d
        streams retain 1h --bytes many
        streams retain 1h --bytes 0
        streams retain 1h --bytes 8000000GiB
        streams retain --bytes 10MiB
        streams retain off --bytes 10MiB
        streams retain 24h --env nowhere
    """)
    assert json.loads(evenlane("streams", "retain", "--json")[1])["retain_s"] is None
    transcript.check()

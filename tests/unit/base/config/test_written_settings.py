"""What `evenlane config` prints can be pasted back as a setting."""

import inspect
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.base.config.settings import KEYS, Settings, load
from evenlane.engine.base.config.values import write

HINTS = get_type_hints(Settings, include_extras=True)
WORD = st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,12}", fullmatch=True)
PORT = st.integers(1, 65_535)
DECIMALS = 12  # as many as a number in a file would have, and some more
TEXTS = {
    "store": st.lists(WORD.map("memory://{}".format), min_size=1, max_size=1),
    "nats_url": st.builds("nats://{}:{}".format, WORD, PORT),
    "http_url": st.builds("http://{}:{}".format, WORD, PORT),
    "https_url": st.builds("https://{}:{}".format, WORD, PORT),
    "host_port": st.builds("{}:{}".format, WORD, PORT),
    "listen_address": st.builds("{}:{}".format, WORD, PORT),
    "kubernetes_name": WORD.map(str.lower),
    "inbox": WORD.map("_INBOX.{}".format),
    "name": WORD.map(str.lower),
    "text": WORD,
    "flag": st.booleans(),
    "file": st.just(__file__),
    "folder": st.just(str(Path(__file__).parent)),
    "share": st.decimals(0, 1, places=DECIMALS).map(float),
    "rate": st.decimals("0.000001", 10**9, places=DECIMALS).map(float),
    "wait_target": st.builds("p{} wait {}ms".format, st.integers(50, 99), st.integers(1, 86_400_000)),
}


OF_KIND = {
    "whole": lambda of: st.integers(of["low"], of["high"]),
    "size": lambda of: st.integers(of["low"], of["high"]),
    "number": lambda of: st.decimals(of["low"], of["high"], places=DECIMALS).map(float),
    "whole_seconds": lambda of: st.integers(of["low"], of["high"]),
    "duration": lambda of: st.floats(of["low"], of["high"]),
    "zero_or_duration": lambda of: st.floats(of["low"], of["high"]),
    "choice": lambda of: st.sampled_from(of["allowed"]),
    "list_of": lambda of: st.lists(
        values(of["parse_one"]), min_size=of["low"], max_size=min(of["high"], 4), unique=True
    ),
}


def values(parse):
    """Values that a parser takes, by its kind and bounds."""
    kind, bounds = parse.__qualname__.partition(".")[0], inspect.getclosurevars(parse).nonlocals
    return OF_KIND[kind](bounds) if kind in OF_KIND else TEXTS[kind]


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=20)
@given(data=st.data())
def test_written_value_is_parsed_as_the_same(key, data):
    """Durations and sizes with their units, numbers, lists, paths."""
    parse = HINTS[key].__metadata__[0]
    value = parse(data.draw(values(parse)))
    assert value == parse(write(parse, value)), write(parse, value)


def test_written_settings_are_the_same_settings():
    written = load({}, {}).settings.written()
    shown = ("dead_letter_keep", "payload_budget", "settle_interval", "lease_ttl", "scaling_cpu", "push_private")
    assert ["30d", "64MiB", "0.1s", "10s", "0.9", "false"] == [written[key] for key in shown]
    environ = {f"EVENLANE_{key.upper()}": text for key, text in written.items() if text is not None}
    assert load({}, {}).settings == load({}, environ).settings


def test_credentials_are_masked():
    assert "nats://***@a:1" == load({"nats": "nats://user:s3cret@a:1"}, {}).settings.written()["nats"]

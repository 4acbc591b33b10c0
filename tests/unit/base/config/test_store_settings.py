"""E15: `store` and `nats` are two settings for one thing."""

import pytest

from evenlane.engine.base.config.settings import Settings, load
from tests.unit.base.config.loading import refusal, written


def test_store_addresses_are_those_of_nats(folder):
    settings, origins = load({"store": "a:1,b:2"}, {})
    assert ("nats://a:1", "nats://b:2") == settings.nats == settings.store == settings.nats_servers
    assert "flag --store" == origins["nats"] == origins["store"]
    assert not settings.is_in_memory


def test_memory_store_is_named_by_its_scheme(folder):
    for url in ("memory://", "memory://mine"):
        settings = load({}, {"EVENLANE_STORE": url}).settings
        assert ((url,), True) == (settings.store, settings.is_in_memory)
        assert Settings().nats == settings.nats_servers


def test_higher_layer_wins_with_either_setting(folder):
    file = written(folder / "some.toml", 'nats = "file:1"')
    assert load({}, {"EVENLANE_STORE": "memory://"}, file).settings.is_in_memory
    settings, origins = load({"nats": "flag:1"}, {"EVENLANE_STORE": "memory://"}, file)
    assert (None, ("nats://flag:1",)) == (settings.store, settings.nats_servers)
    assert ("default", "flag --nats") == (origins["store"], origins["nats"])


def test_settings_in_one_layer_must_agree(folder):
    environ = {"EVENLANE_STORE": "memory://", "EVENLANE_NATS": "a:1"}
    assert "store (variable EVENLANE_STORE) and nats (variable EVENLANE_NATS) differ: set one of them" == refusal(
        environ=environ
    )
    assert ("nats://a:1",) == load({}, environ | {"EVENLANE_STORE": "nats://a:1"}).settings.nats_servers


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("memory://a b", "'memory://a b' is not a store: write memory:// or memory://NAME"),
        ("memory:", "'memory:' is not a store: write memory://"),
        ("memory://,a:1", "names several stores: memory:// can't be combined with others"),
        ("http://a:1", "'http://a:1' is not a NATS address: write nats://HOST:PORT"),
    ],
)
def test_invalid_store_is_refused(folder, value, sentence):
    assert sentence in refusal(environ={"EVENLANE_STORE": value})

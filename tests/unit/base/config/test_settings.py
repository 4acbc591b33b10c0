import dataclasses
import json
import os
import socket
from pathlib import Path

import pytest

from evenlane.engine.base.config.settings import CLUSTER_SETTINGS, KEYS, Settings, load
from evenlane.engine.errors import ConfigError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that the process stands in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(**arguments) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**{"environ": {}} | arguments)
    return str(caught.value)


def test_without_anything_the_defaults_are_in_force(folder):
    loaded = load(environ={})
    assert Settings() == loaded.settings
    assert dict.fromkeys(KEYS, "default") == loaded.origins


def test_every_default_would_be_accepted_if_it_were_written_down(folder):
    chosen = {key: value for key, value in Settings().shown().items() if value is not None}
    assert Settings() == load(chosen, environ={}).settings


def test_flags_win_over_variables_and_those_over_the_file(folder):
    file = written(folder / "some.toml", 'env = "file"\nconcurrency = 1\nreplicas = 3\n')
    environ = {"EVENLANE_ENV": "variable", "EVENLANE_CONCURRENCY": "2"}
    settings, origins = load({"env": "flag"}, environ, file)
    assert ("flag", 2, 3, 256) == (settings.env, settings.concurrency, settings.replicas, settings.read_ahead)
    assert "flag --env" == origins["env"]
    assert "variable EVENLANE_CONCURRENCY" == origins["concurrency"]
    assert f"file {file}" == origins["replicas"]
    assert "default" == origins["read_ahead"]


def test_a_flag_that_was_not_given_changes_nothing(folder):
    assert "sandbox" == load({"env": None}, {"EVENLANE_ENV": "sandbox"}).settings.env


def test_the_file_is_the_one_named_else_the_variables_else_the_folders(folder):
    written(folder / "evenlane.toml", 'env = "here"')
    named = written(folder / "named.toml", 'env = "named"')
    flag = written(folder / "flag.toml", 'env = "flag"')
    environ = {"EVENLANE_CONFIG": str(named)}
    assert "here" == load(environ={}).settings.env
    assert "named" == load(environ=environ).settings.env
    assert "flag" == load(environ=environ, config=flag).settings.env


def test_lists_come_as_text_or_as_arrays(folder):
    file = written(folder / "f.toml", 'nats = ["nats://a:1", "tls://b:2"]\npriorities = "high,low"\n')
    settings = load(environ={"EVENLANE_ETCD": "a:1, [::1]:2"}, config=file).settings
    assert ("nats://a:1", "tls://b:2") == settings.nats
    assert ("a:1", "[::1]:2") == settings.etcd
    assert ("high", "low") == settings.priorities


def test_a_bare_host_gets_the_scheme_of_nats(folder):
    assert ("nats://a", "nats://b:4222") == load({"nats": "a,b:4222"}, {}).settings.nats


def test_durations_and_sizes_come_with_units(folder):
    chosen = {
        "EVENLANE_SETTLE_INTERVAL": "250ms",
        "EVENLANE_LEASE_TTL": "1m",
        "EVENLANE_PAYLOAD_BUDGET": "1GiB",
    }
    settings = load(environ=chosen).settings
    assert (0.25, 60.0, 2**30) == (settings.settle_interval, settings.lease_ttl, settings.payload_budget)


@pytest.mark.parametrize(("chosen", "seconds"), [("0", 0.0), (0, 0.0), ("1", 1.0), ("1500ms", 1.5), ("1d", 86_400.0)])
def test_a_limit_of_blocks_is_none_or_one_that_the_watch_sees(folder, chosen, seconds):
    """F1."""
    assert seconds == load(flags={"block_limit": chosen}).settings.block_limit


def test_an_empty_variable_is_not_set(folder):
    assert "default" == load(environ={"EVENLANE_NATS": ""}).origins["nats"]


def test_what_kubernetes_sets_for_a_service_named_evenlane_is_not_ours(folder):
    environ = dict.fromkeys(
        (
            "EVENLANE_SERVICE_HOST",
            "EVENLANE_SERVICE_PORT_HTTP",
            "EVENLANE_PORT",
            "EVENLANE_PORT_8080_TCP_ADDR",
            "EVENLANE_NATS_PORT_4222_TCP",
            "EVENLANE_HTTP_PORT",
        ),
        "tcp://10.0.0.1:8080",
    )
    assert Settings() == load(environ=environ).settings
    assert 8080 == load(environ={"EVENLANE_HTTP_PORT": "8080"}).settings.http_port


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (
            "nats",
            "http://a:1",
            "'http://a:1' is not a NATS address: write nats://HOST:PORT or tls://HOST:PORT",
        ),
        ("nats", "nats://a:99999", "'nats://a:99999' is not a NATS address"),
        ("nats", "nats://a:1/b", "'nats://a:1/b' is not a NATS address"),
        ("nats", ",", "'' is not a text"),
        ("nats", [], "'[]' has 0 elements instead of 1 to 64"),
        ("nats", "a,a", "'a,a' names an element twice"),
        ("nats", 5, "'5' is neither a list nor a text like a,b"),
        ("etcd", "a", "'a' is not an etcd address: write HOST:PORT, such as 127.0.0.1:2379"),
        ("etcd", "http://a:2379", "'http://a:2379' is not an etcd address"),
        ("etcd", "a:0", "'a:0' is not an etcd address"),
        ("env", "on line", "environment 'on line' is not valid: 1 to 64 letters, digits or '-'"),
        ("node", ".n", "node '.n' is not valid"),
        ("concurrency", "many", "'many' is not a whole number from 1 to 100000"),
        ("concurrency", 0, "'0' is not a whole number from 1 to 100000"),
        ("concurrency", 1.5, "'1.5' is not a whole number"),
        ("concurrency", True, "'True' is not a whole number"),
        ("concurrency", "9" * 99, "is not a whole number"),
        ("lease_ttl", "1.5s", "'1.5s' is not a whole number of seconds"),
        ("lease_ttl", 0, "'0' is not a duration from 1s to 600s"),
        ("block_limit", 0.5, "'0.5' is neither 0 nor a duration from 1s to 86400s"),
        ("block_limit", "999ms", "'999ms' is neither 0 nor a duration from 1s to 86400s"),
        ("block_limit", "2d", "'2d' is neither 0 nor a duration from 1s to 86400s"),
        ("drain_grace", "soon", "'soon' is not a duration: write 500ms"),
        ("storage", "disk", "'disk' is not one of file, memory"),
        ("replicas", 6, "'6' is not a whole number from 1 to 5"),
        (
            "feed_budget",
            "64MiB",
            "'64MiB' is not a size from 1MiB to 60MiB, as a number of bytes or like 64MiB",
        ),
        ("payload_budget", "1 big", "'1 big' is not a size from 1MiB"),
        ("log_level", "loud", "'loud' is not one of debug, info, warning, error"),
        ("nats_ca", "/nowhere/ca.pem", "'/nowhere/ca.pem' is not a file"),
        ("push_secrets", "/nowhere/secrets", "'/nowhere/secrets' is not a folder"),
        ("push_ca", "/nowhere/ca.pem", "'/nowhere/ca.pem' is not a file"),
        ("push_private", "yes", "'yes' is not true or false"),
        ("push_private", 1, "'1' is not true or false"),
        ("nats_user", " ", "' ' is not a text"),
        ("partitions", 65_537, "'65537' is not a whole number from 1 to 65536"),
        ("priorities", "a,b,c,d,e,f,g,h,i", "has 9 elements instead of 1 to 8"),
        ("priorities", "high,HI_GH", "priority 'HI_GH' is not valid"),
        ("group_qps", 0, "'0' is not a number of messages a second above 0"),
        ("group_qps", float("nan"), "'nan' is not a number of messages a second"),
        ("max_group_qps", "1e400", "'1e400' is not a number of messages a second"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_origin_and_what_would_be_right(folder, key, value, reason):
    assert refusal(flags={key: value}).startswith(f"{key} (flag --{key.replace('_', '-')}): ")
    assert reason in refusal(flags={key: value})


def test_a_wrong_value_names_the_file_or_variable_it_stands_in(folder):
    file = written(folder / "f.toml", "replicas = 9")
    assert f"replicas (file {file}): '9' is not" in refusal(config=file)
    assert "replicas (variable EVENLANE_REPLICAS): 'x' is not" in refusal(environ={"EVENLANE_REPLICAS": "x"})


def test_an_unknown_key_gets_the_nearest_known_one(folder):
    file = written(folder / "f.toml", "lease-ttl = 3")
    assert f"file {file}: there is no setting 'lease-ttl'; did you mean lease_ttl?" == refusal(config=file)
    by_variable = refusal(environ={"EVENLANE_CONCURENCY": "3"})
    assert "did you mean EVENLANE_CONCURRENCY?" in by_variable
    assert "`evenlane config` lists the settings" in refusal(environ={"EVENLANE_XYZZY": "3"})


def test_a_file_that_cannot_be_read_or_is_not_toml_is_named(folder):
    assert "file gone.toml can't be read: No such file or directory" == refusal(config=Path("gone.toml"))
    broken = written(folder / "b.toml", "env = = 1")
    assert f"file {broken} is not TOML in UTF-8: " in refusal(config=broken)
    (folder / "latin.toml").write_bytes(b'env = "\xe9"')
    assert "latin.toml is not TOML in UTF-8: it is no UTF-8 text" in refusal(config=folder / "latin.toml")
    marked = written(folder / "bom.toml", '\ufeffenv = "online"')
    assert f"file {marked} begins with a byte order mark (BOM): save it as UTF-8 without one" == refusal(config=marked)


def test_a_path_in_the_file_is_meant_from_that_files_folder(folder):
    (folder / "etc").mkdir()
    ca = written(folder / "etc" / "ca.pem", "x")
    file = written(folder / "etc" / "f.toml", 'nats_ca = "ca.pem"')
    assert ca == load(environ={}, config=file).settings.nats_ca
    secrets = folder / "etc" / "secrets"
    secrets.mkdir()
    file = written(folder / "etc" / "f.toml", 'push_secrets = "secrets"\npush_private = true')
    settings = load(environ={}, config=file).settings
    assert (secrets, True) == (settings.push_secrets, settings.push_private)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nats_cert", "nats_key"),
        ("etcd_key", "etcd_cert"),
        ("nats_user", "nats_password_file"),
        ("etcd_password_file", "etcd_user"),
    ],
)
def test_what_only_works_together_is_set_together(folder, one, other):
    flag = f"--{one.replace('_', '-')}"
    path = str(written(folder / "there", "x"))
    assert f"{one} (flag {flag}): is set without {other}; set both or neither" == refusal(flags={one: path})


def test_a_wanted_group_rate_above_the_limit_is_refused(folder):
    chosen = {"group_qps": 200, "max_group_qps": 150}
    expected = "group_qps (flag --group-qps): 200 is above max_group_qps, which is 150 (flag --max-group-qps)"
    assert expected == refusal(flags=chosen)


def test_a_secret_is_read_from_its_file_when_it_is_used(folder):
    path = written(folder / "password", "first\n")
    chosen = {
        "nats_user": "u",
        "nats_password_file": str(path),
        "etcd_user": "e",
        "etcd_password_file": str(path),
    }
    settings = load(chosen, {}).settings
    assert ("first", "first") == (settings.nats_password(), settings.etcd_password())
    written(path, "second\n")
    assert "second" == settings.nats_password()
    written(path, "\n")
    with pytest.raises(ConfigError, match=r"nats_password_file: .* is empty and should hold the password"):
        settings.nats_password()
    path.unlink()
    with pytest.raises(ConfigError, match=r"etcd_password_file: .* can't be read"):
        settings.etcd_password()
    assert Settings().nats_password() is None


def test_a_secret_shows_neither_in_the_values_nor_in_an_error(folder):
    settings = load({"nats": "nats://user:s3cret@a:1,tok3n@b:2"}, {}).settings
    assert ("nats://user:s3cret@a:1", "nats://tok3n@b:2") == settings.nats
    assert ["nats://***@a:1", "nats://***@b:2"] == settings.shown()["nats"]
    for wrong in ("http://user:s3cret@a", "user:s3/cret@a:1:1", "a,nats://u:s3cret@"):
        assert "cret" not in refusal(flags={"nats": wrong})
    by_mistake = refusal(environ={"EVENLANE_NATS_PASSWORD": "s3cret"})
    assert "s3cret" not in by_mistake
    assert "did you mean EVENLANE_NATS_PASSWORD_FILE?" in by_mistake


def test_a_node_without_a_name_is_host_and_pid():
    assert f"{socket.gethostname()}-{os.getpid()}" == Settings().node_id()
    assert "n1" == Settings(node="n1").node_id()


def test_cluster_facts_are_what_the_cluster_says_unless_set():
    assert [None] * 5 == [getattr(Settings(), fact) for fact in CLUSTER_SETTINGS]


def test_settings_cannot_change_and_can_be_shown_as_json():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().env = "x"  # type: ignore[misc]
    assert list(KEYS) == list(json.loads(json.dumps(Settings().shown())))


class TestStore:
    """E15: `store` and `nats` are two settings for one thing."""

    def test_nats_servers_are_those_of_nats(self, folder):
        settings, origins = load({"store": "a:1,b:2"}, {})
        assert ("nats://a:1", "nats://b:2") == settings.nats == settings.store == settings.nats_servers
        assert "flag --store" == origins["nats"] == origins["store"]
        assert not settings.is_in_memory

    def test_one_that_names_the_memory(self, folder):
        for url in ("memory://", "memory://mine"):
            settings = load({}, {"EVENLANE_STORE": url}).settings
            assert ((url,), True) == (settings.store, settings.is_in_memory)
            assert Settings().nats == settings.nats_servers

    def test_the_higher_layer_counts_whichever_of_the_two_it_names(self, folder):
        file = written(folder / "some.toml", 'nats = "file:1"')
        assert load({}, {"EVENLANE_STORE": "memory://"}, file).settings.is_in_memory
        settings, origins = load({"nats": "flag:1"}, {"EVENLANE_STORE": "memory://"}, file)
        assert (None, ("nats://flag:1",)) == (settings.store, settings.nats_servers)
        assert ("default", "flag --nats") == (origins["store"], origins["nats"])

    def test_in_one_layer_they_must_agree(self, folder):
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
            ("memory://,a:1", "names several stores: memory:// stands alone"),
            ("http://a:1", "'http://a:1' is not a NATS address: write nats://HOST:PORT"),
        ],
    )
    def test_one_that_is_none_is_refused(self, folder, value, sentence):
        assert sentence in refusal(environ={"EVENLANE_STORE": value})

"""Settings from flags, variables and a file: layers, values and refusals."""

import dataclasses
import json
import os
import socket
from pathlib import Path

import pytest

from evenlane.engine.base.config.settings import CLUSTER_SETTINGS, KEYS, Settings, load
from evenlane.engine.errors import ConfigError
from tests.unit.base.config.loading import refusal, written


def test_settings_have_defaults(folder):
    loaded = load(environ={})
    assert Settings() == loaded.settings
    assert dict.fromkeys(KEYS, "default") == loaded.origins


def test_each_default_is_a_valid_value(folder):
    chosen = {key: value for key, value in Settings().shown().items() if value is not None}
    assert Settings() == load(chosen, environ={}).settings


def test_flags_override_variables_and_variables_the_file(folder):
    file = written(folder / "some.toml", 'env = "file"\nconcurrency = 1\nreplicas = 3\n')
    environ = {"EVENLANE_ENV": "variable", "EVENLANE_CONCURRENCY": "2"}
    settings, origins = load({"env": "flag"}, environ, file)
    assert ("flag", 2, 3, 256) == (settings.env, settings.concurrency, settings.replicas, settings.read_ahead)
    assert "flag --env" == origins["env"]
    assert "variable EVENLANE_CONCURRENCY" == origins["concurrency"]
    assert f"file {file}" == origins["replicas"]
    assert "default" == origins["read_ahead"]


def test_missing_flag_changes_nothing(folder):
    assert "sandbox" == load({"env": None}, {"EVENLANE_ENV": "sandbox"}).settings.env


def test_config_file_is_found_by_flag_variable_or_folder(folder):
    written(folder / "evenlane.toml", 'env = "here"')
    named = written(folder / "named.toml", 'env = "named"')
    flag = written(folder / "flag.toml", 'env = "flag"')
    environ = {"EVENLANE_CONFIG": str(named)}
    assert "here" == load(environ={}).settings.env
    assert "named" == load(environ=environ).settings.env
    assert "flag" == load(environ=environ, config=flag).settings.env


def test_list_is_a_text_or_an_array(folder):
    file = written(folder / "f.toml", 'nats = ["nats://a:1", "tls://b:2"]\npriorities = "high,low"\n')
    settings = load(environ={"EVENLANE_ETCD": "a:1, [::1]:2"}, config=file).settings
    assert ("nats://a:1", "tls://b:2") == settings.nats
    assert ("a:1", "[::1]:2") == settings.etcd
    assert ("high", "low") == settings.priorities


def test_nats_address_without_scheme_gets_it(folder):
    assert ("nats://a", "nats://b:4222") == load({"nats": "a,b:4222"}, {}).settings.nats


def test_durations_and_sizes_have_units(folder):
    chosen = {
        "EVENLANE_SETTLE_INTERVAL": "250ms",
        "EVENLANE_LEASE_TTL": "1m",
        "EVENLANE_PAYLOAD_BUDGET": "1GiB",
    }
    settings = load(environ=chosen).settings
    assert (0.25, 60.0, 2**30) == (settings.settle_interval, settings.lease_ttl, settings.payload_budget)


@pytest.mark.parametrize(("chosen", "seconds"), [("0", 0.0), (0, 0.0), ("1", 1.0), ("1500ms", 1.5), ("1d", 86_400.0)])
def test_block_limit_is_zero_or_at_least_a_second(folder, chosen, seconds):
    """F1."""
    assert seconds == load(flags={"block_limit": chosen}).settings.block_limit


def test_empty_variable_counts_as_unset(folder):
    assert "default" == load(environ={"EVENLANE_NATS": ""}).origins["nats"]


def test_variables_of_a_kubernetes_service_named_evenlane_are_ignored(folder):
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
        ("nats", ",", "'' is empty"),
        ("nats", [], "'[]' has 0 elements instead of 1 to 64"),
        ("nats", "a,a", "'a,a' names an element twice"),
        ("nats", 5, "'5' is neither a list nor a string like a,b"),
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
        ("lease_ttl", 0, "'0' is not a duration from 1s to 10m"),
        ("block_limit", 0.5, "'0.5' is neither 0 nor a duration from 1s to 1d"),
        ("block_limit", "999ms", "'999ms' is neither 0 nor a duration from 1s to 1d"),
        ("block_limit", "2d", "'2d' is neither 0 nor a duration from 1s to 1d"),
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
        ("nats_user", " ", "' ' is empty"),
        ("partitions", 65_537, "'65537' is not a whole number from 1 to 65536"),
        ("priorities", "a,b,c,d,e,f,g,h,i", "has 9 elements instead of 1 to 8"),
        ("priorities", "high,HI_GH", "priority 'HI_GH' is not valid"),
        ("group_qps", 0, "'0' is not a number of messages a second above 0"),
        ("group_qps", float("nan"), "'nan' is not a number of messages a second"),
        ("max_group_qps", "1e400", "'1e400' is not a number of messages a second"),
    ],
)
def test_invalid_value_is_refused_with_key_origin_and_valid_form(folder, key, value, reason):
    assert refusal(flags={key: value}).startswith(f"{key} (flag --{key.replace('_', '-')}): ")
    assert reason in refusal(flags={key: value})


def test_invalid_value_is_refused_with_its_file_or_variable(folder):
    file = written(folder / "f.toml", "replicas = 9")
    assert f"replicas (file {file}): '9' is not" in refusal(config=file)
    assert "replicas (variable EVENLANE_REPLICAS): 'x' is not" in refusal(environ={"EVENLANE_REPLICAS": "x"})


def test_unknown_key_is_refused_with_the_nearest_known_one(folder):
    file = written(folder / "f.toml", "lease-ttl = 3")
    assert f"file {file}: there is no setting 'lease-ttl'; did you mean lease_ttl?" == refusal(config=file)
    by_variable = refusal(environ={"EVENLANE_CONCURENCY": "3"})
    assert "did you mean EVENLANE_CONCURRENCY?" in by_variable
    assert "`evenlane config` lists the settings" in refusal(environ={"EVENLANE_XYZZY": "3"})


def test_unreadable_or_malformed_file_is_refused(folder):
    assert "file gone.toml can't be read: No such file or directory" == refusal(config=Path("gone.toml"))
    broken = written(folder / "b.toml", "env = = 1")
    assert f"file {broken} is not valid TOML: " in refusal(config=broken)
    (folder / "latin.toml").write_bytes(b'env = "\xe9"')
    assert "latin.toml is not TOML in UTF-8: it isn't UTF-8 text" in refusal(config=folder / "latin.toml")
    marked = written(folder / "bom.toml", '\ufeffenv = "online"')
    assert f"file {marked} begins with a byte order mark (BOM): save it as UTF-8 without one" == refusal(config=marked)


def test_path_in_a_file_is_relative_to_the_files_folder(folder):
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
def test_paired_settings_must_be_set_together(folder, one, other):
    flag = f"--{one.replace('_', '-')}"
    path = str(written(folder / "there", "x"))
    assert f"{one} (flag {flag}): is set without {other}; set both or neither" == refusal(flags={one: path})


def test_group_qps_above_max_group_qps_is_refused(folder):
    chosen = {"group_qps": 200, "max_group_qps": 150}
    expected = "group_qps (flag --group-qps): 200 is above max_group_qps, which is 150 (flag --max-group-qps)"
    assert expected == refusal(flags=chosen)


def test_secret_is_read_from_its_file_on_each_use(folder):
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
    with pytest.raises(ConfigError, match=r"nats_password_file: .* is empty: it must hold the password"):
        settings.nats_password()
    path.unlink()
    with pytest.raises(ConfigError, match=r"etcd_password_file: .* can't be read"):
        settings.etcd_password()
    assert Settings().nats_password() is None


def test_secret_is_shown_neither_in_values_nor_in_errors(folder):
    settings = load({"nats": "nats://user:s3cret@a:1,tok3n@b:2"}, {}).settings
    assert ("nats://user:s3cret@a:1", "nats://tok3n@b:2") == settings.nats
    assert ["nats://***@a:1", "nats://***@b:2"] == settings.shown()["nats"]
    for wrong in ("http://user:s3cret@a", "user:s3/cret@a:1:1", "a,nats://u:s3cret@"):
        assert "cret" not in refusal(flags={"nats": wrong})
    by_mistake = refusal(environ={"EVENLANE_NATS_PASSWORD": "s3cret"})
    assert "s3cret" not in by_mistake
    assert "did you mean EVENLANE_NATS_PASSWORD_FILE?" in by_mistake


def test_node_id_defaults_to_host_and_pid():
    assert f"{socket.gethostname()}-{os.getpid()}" == Settings().node_id()
    assert "n1" == Settings(node="n1").node_id()


def test_cluster_settings_default_to_none():
    assert [None] * 6 == [getattr(Settings(), key) for key in CLUSTER_SETTINGS]


def test_settings_are_frozen_and_can_be_shown_as_json():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().env = "x"  # type: ignore[misc]
    assert list(KEYS) == list(json.loads(json.dumps(Settings().shown())))

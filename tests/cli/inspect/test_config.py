import json

import pytest

from evenlane.engine.base.config.settings import KEYS
from evenlane.engine.cli.main import run


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A process without any EVENLANE_ variable, in an empty folder."""
    monkeypatch.setattr("os.environ", {"PATH": ""})
    monkeypatch.chdir(tmp_path)


def test_json_has_every_value_with_its_origin(capsys):
    assert 0 == run(["config", "--json", "--env", "sandbox"])
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "" == err
    assert list(KEYS) == list(document["settings"]) == list(document["origins"])
    assert ("sandbox", "flag --env") == (document["settings"]["env"], document["origins"]["env"])
    assert document["settings"]["partitions"] is None
    assert (10.0, 2**26) == (document["settings"]["lease_ttl"], document["settings"]["payload_budget"])


def test_table_shows_value_and_origin_of_each_setting(capsys, tmp_path):
    (tmp_path / "evenlane.toml").write_text("lease_ttl = 5\n")
    assert 0 == run(["config"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["SETTING", "VALUE", "FROM"] == lines[0]
    assert ["lease_ttl", "5s", "file", "evenlane.toml"] in lines
    assert ["payload_budget", "64MiB", "default"] in lines
    assert ["partitions", "set", "by", "the", "cluster", "default"] in lines
    assert 1 + len(KEYS) == len(lines)


def test_common_options_follow_the_command(capsys, tmp_path):
    file = tmp_path / "f.toml"
    file.write_text('nats = "a"\netcd = "a:1"\n')
    assert 0 == run(["config", "--json", "--config", str(file), "--nats", "b:1,c:2", "--etcd", "d:3"])
    document = json.loads(capsys.readouterr().out)
    assert ["nats://b:1", "nats://c:2"] == document["settings"]["nats"]
    assert ["d:3"] == document["settings"]["etcd"]


def test_credentials_in_addresses_are_masked(capsys):
    assert 0 == run(["config", "--nats", "nats://user:s3cret@a:1"])
    assert 0 == run(["config", "--json", "--nats", "nats://user:s3cret@a:1"])
    assert "s3cret" not in capsys.readouterr().out


def test_help_lists_common_options(capsys):
    assert 0 == run(["config", "--help"])
    out = capsys.readouterr().out
    assert all(option in out for option in ("--nats", "--etcd", "--env", "--config", "--json", "--debug"))


def test_version_and_help_need_no_command(capsys):
    assert 0 == run(["--version"])
    assert capsys.readouterr().out.startswith("evenlane ")
    assert 0 == run([])
    assert capsys.readouterr().out.startswith("Usage: evenlane [OPTIONS] COMMAND")

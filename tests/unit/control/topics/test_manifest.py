"""Manifest: the file of topics that `topics apply` reads."""

import io

import pytest

from evenlane.engine.control.topics.manifest import STDIN, load_manifest
from evenlane.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("t.json", "{", "t.json is not JSON: "),
        ("t.json", '{"acme": {"qps": 1}, "acme": {"qps": 2}}', "acme is given twice"),
        (
            "t.json",
            "\ufeff{}",
            "t.json is not JSON: it begins with a byte order mark (BOM): save it as UTF-8 without one",
        ),
        ("t.json", "[1]", 't.json must be a JSON object such as {"acme": {"qps": 100}}, not a list'),
        ("t.toml", "\ufeff[acme]", "t.toml begins with a byte order mark (BOM): save it as UTF-8 without one"),
        ("t.toml", "[acme", "is not valid TOML"),
        ("t.toml", "a = " + "[" * 20_000, "is not valid TOML: it is nested too deeply"),
        ("t.toml", "a = " + "9" * 5_000, "is not valid TOML: a number has too many digits"),
        (
            "t.toml",
            "[acme]\nqps = 1\n[acme]\nqps = 2",
            "t.toml is not valid TOML: [acme] is there twice (at line 3, column 6)",
        ),
    ],
)
def test_error_names_the_wrong_file(tmp_path, name, text, sentence):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        load_manifest(tmp_path / name)
    assert sentence in str(error.value)


def test_json_list_on_stdin_is_not_taken_for_toml(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'[\n  {"project": "acme"}]')))
    with pytest.raises(ConfigError) as error:
        load_manifest(STDIN)
    assert 'stdin must be a JSON object such as {"acme": {"qps": 100}}, not ' in str(error.value)


def test_toml_on_stdin_may_begin_with_a_table(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[acme]\nqps = 1")))
    assert ["acme"] == [*load_manifest(STDIN).specs]


@pytest.mark.parametrize(
    ("name", "text", "project", "sentence"),
    [
        ("t.json", '{"acme": 5}', "acme", 'must be an object such as {"qps": 100}'),
        ("t.json", '{"a b": {"qps": 1}}', "a b", "project 'a b' is not valid"),
        ("t.json", '{"acme": {"qps": NaN}}', "acme", "qps must be a number from 0.01 to 1,000,000, not NaN"),
        ("t.toml", "[acme]\nqpss = 1", "acme", "qpss is not a field of a topic"),
        ("t.toml", "[acme]\nqps = 2026-01-01", "acme", "qps must be a number"),
    ],
)
def test_wrong_topic_in_a_file_is_named(tmp_path, name, text, project, sentence):
    (tmp_path / name).write_text(text)
    found = load_manifest(tmp_path / name)
    assert sentence in found.wrong[project]
    assert {} == found.specs


def test_missing_file_raises(tmp_path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_manifest(tmp_path / "none.json")

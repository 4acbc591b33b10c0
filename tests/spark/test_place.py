"""A report replaces the previous one once it is complete; a failed or killed run leaves the previous one."""

import subprocess
import sys
from pathlib import Path

import pytest

from evenlane.engine.errors import ConfigError
from evenlane.spark.out.place import Busy, check, stage, url


def _write(folder, text):
    (folder / "report.json").write_text(text)
    (folder / "tenants.parquet").mkdir()
    (folder / "tenants.parquet" / text).write_text(text)


def _seen(folder):
    return (folder / "report.json").read_text(), [each.name for each in (folder / "tenants.parquet").iterdir()]


def test_complete_report_replaces_the_previous_one_and_keeps_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for text in ("first", "second"):
        with stage(tmp_path) as staging:
            _write(staging.new, text)
        assert (text, [text]) == _seen(tmp_path)
    assert ["notes.txt", "report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_failed_run_leaves_only_the_previous_report(tmp_path):
    with stage(tmp_path) as staging:
        _write(staging.new, "first")

    def fail():
        with stage(tmp_path) as staging:
            _write(staging.new, "second")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert ("first", ["first"]) == _seen(tmp_path)
    assert ["report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_next_run_removes_the_remains_of_a_killed_run(tmp_path):
    code = (
        "import os, pathlib, sys\nfrom evenlane.spark.out.place import stage\n"
        "with stage(pathlib.Path(sys.argv[1])) as staging:\n"
        "    (staging.new / 'report.json').write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert -9 == killed.returncode
    assert 1 == len(list(tmp_path.iterdir()))
    assert not (tmp_path / "report.json").exists()
    with stage(tmp_path) as staging:
        _write(staging.new, "whole")
    assert ["report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_relative_folder_with_blanks_is_found_by_java(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with stage(Path("my report")) as staging:
        _write(staging.new, "first")
        assert f"file://{tmp_path}/my report/" == url(staging.new).rpartition(".evenlane-report-")[0]
    assert ("first", ["first"]) == _seen(tmp_path / "my report")


def test_outdated_files_of_the_previous_report_are_removed(tmp_path):
    """For example the quotas of last week, if the new report has none."""
    for name in ("quotas.json", "notes.txt"):
        (tmp_path / name).write_text("old")
    with stage(tmp_path, ["report.json", "tenants.parquet", "quotas.json"]) as staging:
        _write(staging.new, "new")
    assert ["notes.txt", "report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_kill_during_the_replacement_loses_nothing(tmp_path):
    """The next run restores entries that were moved away and not replaced."""
    with stage(tmp_path) as staging:
        _write(staging.new, "first")
    aside = tmp_path / ".evenlane-report-killed" / "scratch" / "previous"
    aside.mkdir(parents=True)
    (tmp_path / "tenants.parquet").rename(aside / "tenants.parquet")
    with pytest.raises(KeyboardInterrupt), stage(tmp_path):
        raise KeyboardInterrupt
    assert ("first", ["first"]) == _seen(tmp_path)


def test_second_run_for_a_folder_is_refused(tmp_path):
    with stage(tmp_path), pytest.raises(Busy, match="another report is being written"), stage(tmp_path):
        pass


def test_file_instead_of_a_folder_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    for wrong in (file, file / "under"):
        with pytest.raises(ConfigError, match=f"--out: {wrong} is not a folder"):
            check(wrong)
    assert check(tmp_path / "new" / "one").is_dir()

"""A report replaces the former one when it is whole (issue 8: a failed or killed run leaves the former report)."""

import subprocess
import sys
from pathlib import Path

import pytest

from evenlane.engine.errors import ConfigError
from evenlane.spark.out.place import Busy, check, staged, url


def _write(folder, text):
    (folder / "report.json").write_text(text)
    (folder / "tenants.parquet").mkdir()
    (folder / "tenants.parquet" / text).write_text(text)


def _seen(folder):
    return (folder / "report.json").read_text(), [each.name for each in (folder / "tenants.parquet").iterdir()]


def test_the_new_one_replaces_the_former_as_a_whole_and_leaves_other_files(tmp_path):
    """Issue 8: output is put in place at the end."""
    (tmp_path / "notes.txt").write_text("mine")
    for text in ("first", "second"):
        with staged(tmp_path) as staging:
            _write(staging.new, text)
        assert (text, [text]) == _seen(tmp_path)
    assert ["notes.txt", "report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_a_run_that_fails_leaves_the_former_report(tmp_path):
    """Issue 8: nor does anything of the failed one stay."""
    with staged(tmp_path) as staging:
        _write(staging.new, "first")

    def fail():
        with staged(tmp_path) as staging:
            _write(staging.new, "second")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert ("first", ["first"]) == _seen(tmp_path)
    assert ["report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_what_a_killed_run_left_goes_with_the_next(tmp_path):
    """Issue 8: a killed run leaves the former report whole, and nothing for ever."""
    code = (
        "import os, pathlib, sys\nfrom evenlane.spark.out.place import staged\n"
        "with staged(pathlib.Path(sys.argv[1])) as staging:\n"
        "    (staging.new / 'report.json').write_text('half')\n    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert -9 == killed.returncode
    assert 1 == len(list(tmp_path.iterdir()))
    assert not (tmp_path / "report.json").exists()
    with staged(tmp_path) as staging:
        _write(staging.new, "whole")
    assert ["report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_a_folder_is_found_by_java_whatever_it_is_called_and_wherever_it_is_named_from(tmp_path, monkeypatch):
    """Issue 8: `--out report`, as in README, and one whose name has blanks."""
    monkeypatch.chdir(tmp_path)
    with staged(Path("my report")) as staging:
        _write(staging.new, "first")
        assert f"file://{tmp_path}/my report/" == url(staging.new).rpartition(".evenlane-report-")[0]
    assert ("first", ["first"]) == _seen(tmp_path / "my report")


def test_what_the_new_one_does_not_have_goes_if_it_is_ours(tmp_path):
    """Issue 8.4: no quotas of last week stand beside a report that could give none."""
    for name in ("quotas.json", "notes.txt"):
        (tmp_path / name).write_text("old")
    with staged(tmp_path, ["report.json", "tenants.parquet", "quotas.json"]) as staging:
        _write(staging.new, "new")
    assert ["notes.txt", "report.json", "tenants.parquet"] == sorted(each.name for each in tmp_path.iterdir())


def test_a_run_that_is_killed_while_it_replaces_loses_nothing(tmp_path):
    """Issue 8.4: what was put aside, and not replaced, comes back with the next run."""
    with staged(tmp_path) as staging:
        _write(staging.new, "first")
    aside = tmp_path / ".evenlane-report-killed" / "scratch" / "former"
    aside.mkdir(parents=True)
    (tmp_path / "tenants.parquet").rename(aside / "tenants.parquet")
    with pytest.raises(KeyboardInterrupt), staged(tmp_path):
        raise KeyboardInterrupt
    assert ("first", ["first"]) == _seen(tmp_path)


def test_two_at_once_are_told(tmp_path):
    """Issue 8: the second one says so instead of mixing its files with the first one's."""
    with staged(tmp_path), pytest.raises(Busy, match="another report is being written"), staged(tmp_path):
        pass


def test_what_is_no_folder_is_told(tmp_path):
    """Issue 8: wrong use is a sentence."""
    file = tmp_path / "file"
    file.write_text("")
    for wrong in (file, file / "under"):
        with pytest.raises(ConfigError, match=f"--out: {wrong} is not a folder"):
            check(wrong)
    assert check(tmp_path / "new" / "one").is_dir()

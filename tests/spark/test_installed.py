"""Reports without their packages, which nodes don't need: one sentence with the command that installs them."""

import os
import subprocess
import sys

import pytest

from evenlane.spark.installed import find_missing
from tests.support import ROOT

_CLI = ("-c", "from evenlane.engine.cli.main import main; main()", "report", "--out", "report")
_JOBS = [("-m", f"evenlane.spark.jobs.{name}") for name in ("report", "archive", "tables")]


def _sentence(lacking):
    needed = "PySpark, PyArrow, pandas and Polars"
    return f'reports run on {needed}, and {lacking} not installed: pip install "evenlane[spark]"'


@pytest.mark.parametrize(
    ("names", "lacking"),
    [
        (("pyspark",), "pyspark is"),
        (("polars",), "polars is"),
        (("pandas",), "pandas is"),
        (("pyarrow",), "pyarrow is"),
        (("pyspark", "pyarrow"), "pyspark and pyarrow are"),
        (("pyspark", "pyarrow", "pandas", "polars"), "pyspark, pyarrow, pandas and polars are"),
    ],
)
def test_missing_packages_are_named_with_the_command(monkeypatch, names, lacking):
    for name in names:
        monkeypatch.setitem(sys.modules, name, None)
    assert _sentence(lacking) == find_missing()


@pytest.mark.parametrize(
    ("program", "lacking"), [(_CLI, "pyspark"), *((job, name) for job in _JOBS for name in ("pyspark", "polars"))]
)
def test_program_without_a_package_ends_with_one_sentence(tmp_path, program, lacking):
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{lacking!r}] = None\n")
    ended = subprocess.run(
        [sys.executable, *program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (1, "") == (ended.returncode, ended.stdout)
    assert ended.stderr.endswith(f"{_sentence(f'{lacking} is')}\n")
    assert 1 == len(ended.stderr.splitlines())

"""Reports where PySpark isn't installed, as on nodes (issue 8: every error is one sentence)."""

import os
import subprocess
import sys

import pytest

from tests.support import ROOT

_CLI = ("-c", "from evenlane.engine.cli.main import main; main()", "report", "--out", "report")
_JOBS = [("-m", f"evenlane.spark.jobs.{name}") for name in ("report", "archive", "tables")]


@pytest.mark.parametrize(
    ("lacking", "reported"),
    [(("pyspark",), "pyspark is"), (("pyarrow",), "pyarrow is"), (("pyspark", "pyarrow"), "pyspark and pyarrow are")],
)
@pytest.mark.parametrize("program", [_CLI, *_JOBS])
def test_what_is_missing_and_how_to_get_it_is_one_sentence(tmp_path, program, lacking, reported):
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in lacking)
    (tmp_path / "sitecustomize.py").write_text("import sys\n" + hidden)
    ended = subprocess.run(
        [sys.executable, *program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    sentence = f'reports run on PySpark and PyArrow, and {reported} not installed: pip install "evenlane[spark]"'
    assert (1, "") == (ended.returncode, ended.stdout)
    assert ended.stderr.endswith(f"{sentence}\n")
    assert 1 == len(ended.stderr.splitlines())

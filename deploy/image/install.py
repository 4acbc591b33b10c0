"""Installs the wheels of a folder into a folder: `python3 install.py WHEELS TARGET`. Runs while the image is built, in
which pip isn't installed: it is one of the wheels.
"""

import compileall
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

# Sources of compiled modules, and types: nothing reads them at run time.
_UNREAD = {".c", ".cc", ".cpp", ".h", ".pyx", ".pxd", ".pxi", ".pyi"}
_TESTS = {"test", "tests"}


def main(wheels: Path, target: Path) -> None:
    [pip] = wheels.glob("pip-*.whl")
    [wheel] = wheels.glob("evenlane-*.whl")
    subprocess.run(
        [sys.executable, pip / "pip", "install", "--quiet", "--no-cache-dir", "--no-compile", "--no-index",
         "--root-user-action=ignore", "--find-links", wheels, "--target", target, wheel],
        check=True,
    )  # fmt: skip
    _prune(target)
    _strip(target)
    # By hash and unchecked: the times of files change when they are copied, and the image can't be written.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(target, quiet=1, invalidation_mode=mode):
        sys.exit("a module can't be compiled")


def _prune(target: Path) -> None:
    for path in sorted(target.rglob("*"), reverse=True):
        if path.is_dir() and path.name in _TESTS:
            shutil.rmtree(path)
        elif path.suffix in _UNREAD:
            path.unlink()
    for path in (target / "bin").iterdir():
        if path.name != "evenlane":
            path.unlink()


def _strip(target: Path) -> None:
    """Remove the symbols of compiled modules, of which some bring ten times as much as code."""
    if strip := shutil.which("strip"):
        subprocess.run([strip, "--strip-unneeded", *target.rglob("*.so"), *target.rglob("*.so.*")], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

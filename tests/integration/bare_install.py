"""An environment with the wheel and what it requires, and nothing else."""

import importlib.metadata as installed
import os
import subprocess
import venv
import zipfile
from pathlib import Path

from packaging.requirements import Requirement

MAIN = "import sys; from evenlane.engine.cli.main import main; sys.argv[0] = 'evenlane'; main()"


def required(lines, extras=("",)):
    """The names of the distributions that these requirements bring, with those that they require in turn."""
    names, open_ = set(), [(line, extras) for line in lines]
    while open_:
        line, chosen = open_.pop()
        need = Requirement(line)
        if need.marker is not None and not any(need.marker.evaluate({"extra": each}) for each in chosen):
            continue
        if (need.name, *sorted(need.extras)) not in names:
            names.add((need.name, *sorted(need.extras)))
            requires = installed.requires(need.name) or []
            open_ += [(each, ("", *need.extras)) for each in requires]
    return {name for name, *_ in names}


class BareInstall:
    """A virtual environment without pip. Links to the files of installed distributions stand for their download."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        [self._site] = folder.glob("lib/python3*/site-packages")
        self._python = folder / "bin/python"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._site)
            [metadata] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            text = archive.read(metadata).decode()
        lines = text.partition("\n\n")[0].splitlines()
        prefix = "Requires-Dist: "
        self.packages = required(line.removeprefix(prefix) for line in lines if line.startswith(prefix))
        for package in self.packages:
            self._link(package)

    def _link(self, package: str) -> None:
        distribution = installed.distribution(package)
        for name in {file.parts[0] for file in distribution.files if file.parts[0] not in {"..", "__pycache__"}}:
            link = self._site / name
            if not link.exists():
                link.symlink_to(distribution.locate_file(name))

    def start(self, *arguments, cwd, **environ):
        """Start `evenlane ARGUMENTS` in this environment."""
        return self.start_code(MAIN, *arguments, cwd=cwd, **environ)

    def start_code(self, code, *arguments, cwd, **environ):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVENLANE_", "PYTHON"))}
        return subprocess.Popen(
            [self._python, "-c", code, *arguments], cwd=cwd, env=kept | environ, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *arguments, cwd, **environ):
        """Run `evenlane ARGUMENTS`; return exit code, stdout and stderr."""
        process = self.start(*arguments, cwd=cwd, **environ)
        return self.end(process)

    def run_on_terminal(self, *arguments, cwd):
        """Run `evenlane ARGUMENTS` on a terminal; return exit code and what it shows."""
        ours, theirs = os.openpty()
        process = subprocess.Popen(
            [self._python, "-c", MAIN, *arguments], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        code, shown = process.wait(timeout=120), os.read(ours, 65_536)
        os.close(ours)
        return code, shown.decode().strip()

    @staticmethod
    def end(process):
        out, errors = process.communicate(timeout=120)
        return process.returncode, out, errors

"""Makes a release: `python deploy/release.py check VERSION`, then `tag VERSION`.

`make release` runs both, and builds the wheels between them. Nothing is published.
"""

import email
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_SECTION = re.compile(r"(?m)^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$")


def find_problems(root: Path, version: str) -> Iterator[str]:
    """Yield each reason, as a sentence, why the checkout at `root` isn't this version."""
    if not _VERSION.fullmatch(version):
        yield f"{version!r} is no version: write MAJOR.MINOR.PATCH, for example 1.4.0"
        return
    for where, found in sorted(_versions(root).items()):
        if found != version:
            yield f"{where} has version {found}, not {version}"
    yield from _find_changelog_problems((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if changed := _git(root, "status", "--porcelain").splitlines():
        yield f"the checkout has changes that aren't committed: {changed[0][3:]}{' and others' if changed[1:] else ''}"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists already: choose a higher version"


def _versions(root: Path) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    code = (root / "engine/_version.py").read_text(encoding="utf-8")
    chart = (root / "deploy/helm/evenlane/Chart.yaml").read_text(encoding="utf-8")
    return {
        "pyproject.toml": project["version"],
        "engine/_version.py": _first(r'__version__ = "(.+)"', code),
        "the chart's version": _first(r"(?m)^version: (.+)$", chart),
        "the chart's appVersion": _first(r"(?m)^appVersion: (.+)$", chart),
    }


def _find_changelog_problems(text: str, version: str) -> Iterator[str]:
    sections = [*_SECTION.finditer(text)]
    names = [each[1] for each in sections]
    if "Unreleased" not in names:
        yield "CHANGELOG.md has no section [Unreleased]: keep it, empty, above the release"
        return
    ends = [*(each.start() for each in sections[1:]), len(text)]
    bodies = {each[1]: text[each.end() : end].strip() for each, end in zip(sections, ends, strict=True)}
    if bodies["Unreleased"]:
        yield f"CHANGELOG.md has changes under [Unreleased]: move them to a section `## [{version}] - YYYY-MM-DD`"
    if version not in names:
        yield f"CHANGELOG.md has no section [{version}]"
        return
    if not bodies[version]:
        yield f"CHANGELOG.md lists no change in section [{version}]"
    if sections[names.index(version)][2] is None:
        yield f"CHANGELOG.md has no date in section [{version}]: write `## [{version}] - YYYY-MM-DD`"


def find_wheel_problems(root: Path, version: str) -> Iterator[str]:
    """Yield each reason why the wheels in dist aren't those of this version."""
    wheels = sorted((root / "dist").glob("*.whl"))
    if not wheels:
        yield "dist has no wheel: `make wheel` builds them"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            [name] = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
            found = email.message_from_bytes(archive.read(name))["Version"]
        if found != version:
            yield f"dist/{wheel.name} has version {found}, not {version}"


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1] if found else "(none)"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.rstrip()  # noqa: S607


def main(step: str, version: str, root: Path) -> int:
    """Run a step; return 1 if there is a problem, which is printed."""
    problems = [*find_problems(root, version)]
    if step == "tag":
        problems += find_wheel_problems(root, version)
    for problem in problems:
        print(f"release: {problem}", file=sys.stderr)
    if problems:
        return 1
    if step == "tag":
        _git(root, "tag", "--annotate", f"v{version}", "--message", f"Evenlane {version}")
        print(f"tagged v{version}; `git push origin v{version}` publishes the tag, dist has the files")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in {"check", "tag"}:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], Path(__file__).parents[1]))

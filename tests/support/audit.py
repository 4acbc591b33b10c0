"""`make audit`: a bill of materials of what users install, and the known vulnerabilities in it.

The bill is CycloneDX in JSON, made by cyclonedx-py from the lock file. Vulnerabilities come from the service that
pip-audit asks, or from advisories in the OSV format: a file, a folder or an archive of them, or the URL of one.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import urlopen

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;\\]+)", re.MULTILINE)
_ANSWER_S = 60
FOUND, UNKNOWN = 1, 2  # exit codes: vulnerabilities; nothing is known about them


class Finding(NamedTuple):
    """A known vulnerability of an installed version."""

    package: str
    version: str
    id: str
    fixed: tuple[str, ...]

    def __str__(self) -> str:
        remedy = f"fixed in {', '.join(self.fixed)}" if self.fixed else "there is no fixed version"
        return f"{self.package} {self.version}: {self.id}, {remedy}"


class NotAuditedError(Exception):
    """Vulnerabilities can't be looked up; the text is one sentence."""


def pinned(lock: str) -> dict[str, str]:
    """The versions in a lock file, by name."""
    return {canonicalize_name(name): version for name, version in _PINNED.findall(lock)}


def match(advisory: Mapping[str, Any], versions: Mapping[str, str]) -> Iterator[Finding]:
    """What an advisory (OSV schema 1.x) says about these versions."""
    if advisory.get("withdrawn"):
        return
    for affected in advisory.get("affected", ()):
        package = affected.get("package", {})
        name = canonicalize_name(str(package.get("name", "")))
        if package.get("ecosystem") != "PyPI" or name not in versions:
            continue
        events = [
            event for each in affected.get("ranges", ()) if each.get("type") == "ECOSYSTEM" for event in each["events"]
        ]
        if versions[name] in affected.get("versions", ()) or any(
            _is_in(Version(versions[name]), each["events"])
            for each in affected.get("ranges", ())
            if each.get("type") == "ECOSYSTEM"
        ):
            fixed = tuple(event["fixed"] for event in events if "fixed" in event)
            yield Finding(name, versions[name], str(advisory["id"]), fixed)


def _is_in(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """Whether a version is in a range, by the algorithm of the OSV schema."""
    is_affected = False
    for event in sorted(events, key=lambda event: Version(next(iter(event.values())))):
        [(kind, text)] = event.items()
        bound = Version(text)
        if kind == "introduced" and version >= bound:
            is_affected = True
        elif (kind == "fixed" and version >= bound) or (kind == "last_affected" and version > bound):
            is_affected = False
    return is_affected


def advisories(where: str) -> Iterator[dict[str, Any]]:
    """The advisories in a file, a folder or at a URL: JSON with one or a list, or an archive (zip) of such files.

    Raises NotAuditedError.
    """
    try:
        if "://" in where:
            with urlopen(where, timeout=_ANSWER_S) as answer:
                yield from _parse(answer.read())
        elif Path(where).is_dir():
            for path in sorted(Path(where).rglob("*.json")):
                yield from _parse(path.read_bytes())
        else:
            yield from _parse(Path(where).read_bytes())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise NotAuditedError(f"the advisories in {where} can't be read: {error}") from error


def _parse(raw: bytes) -> Iterator[dict[str, Any]]:
    if raw.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield from _parse(archive.read(name))
        return
    found = json.loads(raw)
    yield from found if isinstance(found, list) else [found]


def look_up(where: str, versions: Mapping[str, str]) -> list[Finding]:
    """The findings by the advisories there. Raises NotAuditedError, also if there are none."""
    findings: list[Finding] = []
    is_empty = True
    for advisory in advisories(where):
        is_empty = False
        try:
            findings += match(advisory, versions)
        except (InvalidVersion, KeyError, ValueError, AttributeError, TypeError) as error:
            raise NotAuditedError(f"an advisory in {where} is not valid: {error!r}") from error
    if is_empty:
        raise NotAuditedError(f"there are no advisories in {where}")
    return findings


def ask_service(lock: Path, run: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> list[Finding]:
    """The findings of pip-audit's service. Raises NotAuditedError if it can't be reached."""
    asked = subprocess.run(
        [*run, "--requirement", str(lock), "--require-hashes", "--disable-pip", "--format", "json",
         "--progress-spinner", "off", "--timeout", str(_ANSWER_S)],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    try:
        packages = json.loads(asked.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (asked.stderr.strip() or "no answer").splitlines()[-1][:300]
        raise NotAuditedError(
            f"the service for advisories can't be asked ({last}): give a copy with ADVISORIES=FILE, or a URL"
        ) from None
    skipped = [each for each in packages if "skip_reason" in each]  # pip-audit itself calls that success
    if skipped:
        raise NotAuditedError(
            f"the service for advisories doesn't answer for {len(skipped)} of {len(packages)} packages, such as"
            f" {skipped[0]['name']}: give a copy with ADVISORIES=FILE, or a URL"
        )
    return [
        Finding(each["name"], each["version"], problem["id"], tuple(problem["fix_versions"]))
        for each in packages
        for problem in each.get("vulns", ())
    ]


def write_bill(lock: Path, to: Path) -> None:
    """Write the bill of materials. The same lock gives the same bytes."""
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "cyclonedx_py", "requirements", str(lock), "--pyproject", "pyproject.toml",
         "--output-reproducible", "--output-format", "JSON", "--output-file", str(to)],
        check=True, capture_output=True,
    )  # fmt: skip


def main(arguments: Iterable[str]) -> int:
    parser = argparse.ArgumentParser(prog="make audit")
    parser.add_argument("--lock", type=Path, default=Path("requirements.txt"))
    parser.add_argument("--bill", type=Path, default=Path("build/sbom.json"))
    parser.add_argument("--advisories", default="", help="a file, folder or URL with advisories in the OSV format")
    parser.add_argument("--ignore", action="append", default=[], metavar="ID", help="an advisory that doesn't apply")
    given = parser.parse_args([*arguments])
    versions = pinned(given.lock.read_text())
    write_bill(given.lock, given.bill)
    _say(f"{given.bill}: {len(versions)} packages of {given.lock}, in CycloneDX")
    try:
        found = look_up(given.advisories, versions) if given.advisories else ask_service(given.lock)
    except NotAuditedError as error:
        _say(f"not checked for vulnerabilities: {error}")
        return UNKNOWN
    left = [each for each in found if each.id not in given.ignore]
    for each in left:
        _say(str(each))
    if not left:
        _say("no known vulnerabilities")
    return FOUND if left else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

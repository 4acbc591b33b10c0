"""`make release`: what it refuses, and that it tags only a version on which all places agree."""

import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.support import ROOT

pytestmark = pytest.mark.source

CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n## [2.3.4] - 2026-12-01\n\n- A change.\n\n## [2.3.3] - 2026-11-01\n\n- B.\n"
)


class Checkout:
    """A small checkout whose files are all of version 2.3.4."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "--quiet")
        shutil.copytree(ROOT / "deploy/helm/evenlane", folder / "deploy/helm/evenlane")
        shutil.copy(ROOT / "deploy/release.py", folder / "deploy/release.py")
        self.write("pyproject.toml", '[project]\nname = "evenlane"\nversion = "2.3.4"\n')
        self.write("engine/_version.py", '__version__ = "2.3.4"\n')
        self.write("deploy/helm/evenlane/Chart.yaml", "name: evenlane\nversion: 2.3.4\nappVersion: 2.3.4\n")
        self.write("CHANGELOG.md", CHANGELOG)
        self.write(".gitignore", "dist/\n")
        self.wheel("2.3.4")

    def git(self, *arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        ran = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return ran.stdout.split()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def wheel(self, version):
        (self.folder / "dist").mkdir(exist_ok=True)
        with zipfile.ZipFile(self.folder / "dist/evenlane-py3-none-any.whl", "w") as archive:
            archive.writestr("evenlane.dist-info/METADATA", f"Metadata-Version: 2.4\nVersion: {version}\n\ntext\n")

    def commit(self):
        self.git("config", "user.name", "a")
        self.git("config", "user.email", "a@example.org")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "All of it")

    def release(self, step="check", version="2.3.4"):
        """Run a step; return exit code and lines on stderr."""
        command = [sys.executable, "deploy/release.py", step, version]
        ran = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stderr.splitlines()


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_release_is_tagged_if_all_places_agree(checkout):
    checkout.commit()
    assert (0, []) == checkout.release("check")
    assert [] == checkout.git("tag")
    assert (0, []) == checkout.release("tag")
    assert ["v2.3.4"] == checkout.git("tag")
    assert (1, ["release: the tag v2.3.4 exists already: choose a higher version"]) == checkout.release("check")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("pyproject.toml", '[project]\nversion = "2.3.3"\n', "pyproject.toml has version 2.3.3, not 2.3.4"),
        ("engine/_version.py", '__version__ = "2.4.0"\n', "engine/_version.py has version 2.4.0, not 2.3.4"),
        (
            "deploy/helm/evenlane/Chart.yaml", "version: 2.3.4\nappVersion: 2.3.3\n",
            "the chart's appVersion has version 2.3.3, not 2.3.4",
        ),
        ("CHANGELOG.md", CHANGELOG.replace("[2.3.4]", "[2.3.5]"), "CHANGELOG.md has no section [2.3.4]"),
        (
            "CHANGELOG.md", CHANGELOG.replace("[2.3.4] - 2026-12-01", "[2.3.4]"),
            "CHANGELOG.md has no date in section [2.3.4]: write `## [2.3.4] - YYYY-MM-DD`",
        ),
        ("CHANGELOG.md", CHANGELOG.replace("- A change.", ""), "CHANGELOG.md lists no change in section [2.3.4]"),
        (
            "CHANGELOG.md", CHANGELOG.replace("[Unreleased]\n", "[Unreleased]\n\n- C.\n"),
            "CHANGELOG.md has changes under [Unreleased]: move them to a section `## [2.3.4] - YYYY-MM-DD`",
        ),
    ],
)  # fmt: skip
def test_release_is_refused_if_one_place_disagrees(checkout, name, text, problem):
    checkout.write(name, text)
    checkout.commit()
    assert (1, [f"release: {problem}"]) == checkout.release("tag")
    assert [] == checkout.git("tag")


def test_release_is_refused_for_another_wheel_and_for_changes(checkout):
    checkout.commit()
    checkout.wheel("2.3.3")
    assert (1, ["release: dist/evenlane-py3-none-any.whl has version 2.3.3, not 2.3.4"]) == checkout.release("tag")
    checkout.wheel("2.3.4")
    checkout.write(".gitignore", "dist/\nbuild/\n")
    assert (1, ["release: the checkout has changes that aren't committed: .gitignore"]) == checkout.release("tag")
    checkout.write("notes", "x")
    problem = "release: the checkout has changes that aren't committed: .gitignore and others"
    assert (1, [problem]) == checkout.release("tag")
    assert [] == checkout.git("tag")


def test_release_of_no_version_is_refused(checkout):
    checkout.commit()
    problem = "release: 'v2.3' is no version: write MAJOR.MINOR.PATCH, for example 1.4.0"
    assert (1, [problem]) == checkout.release("check", "v2.3")

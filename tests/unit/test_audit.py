"""`make audit` (S4)."""

import json
import sys
import zipfile

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packaging.version import Version

from tests.support import ROOT
from tests.support.audit import FOUND, UNKNOWN, Finding, NotAuditedError, ask_service, look_up, main, match, pinned

LOCK = r"""a-b[x]==1.4.0 ; sys_platform == 'linux' \
    --hash=sha256:00
safe==2.0 \
    --hash=sha256:00
    # via a-b
"""


def advisory(*events, name="A_b", ecosystem="PyPI", versions=(), **more):
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}] if events else []
    package = {"ecosystem": ecosystem, "name": name}
    return {"id": "X-1", "affected": [{"package": package, "ranges": ranges, "versions": list(versions)}], **more}


def test_lock_names_all_packages():
    assert {"a-b": "1.4.0", "safe": "2.0"} == pinned(LOCK)
    text = (ROOT / "requirements.txt").read_text()
    assert text.count("==") - text.count("python_full_version ==") >= len(pinned(text)) > 20


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (advisory({"introduced": "0"}), True),
        (advisory({"introduced": "0"}, {"fixed": "1.4.0"}), False),
        (advisory({"introduced": "0"}, {"fixed": "1.4.1"}), True),
        (advisory({"introduced": "1.4"}, {"last_affected": "1.4"}), True),
        (advisory({"introduced": "0"}, {"last_affected": "1.3.9"}), False),
        (advisory({"introduced": "0"}, {"fixed": "1.1"}, {"introduced": "1.3"}, {"fixed": "1.10"}), True),
        (advisory(versions=["1.3", "1.4.0"]), True),
        (advisory(versions=["1.3"]), False),
        (advisory({"introduced": "0"}, name="other"), False),
        (advisory({"introduced": "0"}, ecosystem="npm"), False),
        (advisory({"introduced": "0"}, withdrawn="2026-01-01T00:00:00Z"), False),
    ],
)
def test_advisories_are_matched_as_the_schema_says(found, expected):
    """S4: OSV's algorithm, and versions by number, not by letters."""
    assert expected == bool([*match(found, pinned(LOCK))])


versions = st.tuples(st.integers(0, 5), st.integers(0, 12)).map(lambda parts: f"{parts[0]}.{parts[1]}")


@given(versions, versions, versions)
def test_simple_range_is_an_interval(low, high, version):
    events = ({"fixed": high}, {"introduced": low})
    assume(low != high)
    expected = Version(low) <= Version(version) < Version(high) or Version(high) < Version(low) <= Version(version)
    assert expected == bool([*match(advisory(*events), {"a-b": version})])


def test_advisories_come_from_a_file_a_folder_or_an_archive(tmp_path):
    """S4: without any network."""
    bad = advisory({"introduced": "0"}, {"fixed": "1.5"})
    (tmp_path / "one.json").write_text(json.dumps(bad))
    (tmp_path / "list.json").write_text(json.dumps([bad, advisory(name="x", versions=["1"])]))
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "one.json", "one.json")
    expected = Finding("a-b", "1.4.0", "X-1", ("1.5",))
    for name in ("one.json", "list.json", "all.zip"):
        assert [expected] == look_up(str(tmp_path / name), pinned(LOCK))
    assert [expected] == look_up((tmp_path / "one.json").as_uri(), pinned(LOCK))
    assert [expected, expected] == look_up(str(tmp_path), pinned(LOCK))
    assert "a-b 1.4.0: X-1, fixed in 1.5" == str(expected)


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"affected": 1}', '[{"affected": [{"package": 1}]}]'])
def test_unusable_advisories_are_one_sentence(tmp_path, text):
    """S4: nothing found in a broken file is not the same as no vulnerability."""
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    if text == "{}":
        assert [] == look_up(str(path), pinned(LOCK))  # an advisory about nothing
        return
    with pytest.raises(NotAuditedError, match=r"advisor(y|ies)"):
        look_up(str(path), pinned(LOCK))


SERVICE = {
    "found": {"name": "a-b", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]},
    "none": {"name": "a-b", "version": "1", "vulns": []},
    "skipped": {"name": "a-b", "skip_reason": "not found"},
}


def service(tmp_path, kind):
    """A program that prints what pip-audit prints."""
    program = tmp_path / "service.py"
    answer = {"dependencies": [SERVICE[kind]]} if kind in SERVICE else None
    program.write_text(f"import sys\nprint({json.dumps(answer)!r}) if {answer is not None} else sys.exit('offline')\n")
    return sys.executable, str(program)


def test_service_answers_or_is_out_of_reach(tmp_path):
    """S4: packages that it skips are not safe."""
    assert [Finding("a-b", "1", "X-1", ("2",))] == ask_service(tmp_path, service(tmp_path, "found"))
    assert [] == ask_service(tmp_path, service(tmp_path, "none"))
    for kind, text in (
        ("skipped", "doesn't answer for 1 of 1 packages, such as a-b"),
        ("offline", r"\(offline\): give"),
    ):
        with pytest.raises(NotAuditedError, match=text):
            ask_service(tmp_path, service(tmp_path, kind))


def test_bill_is_made_even_if_advisories_are_missing(tmp_path, capsys, monkeypatch):
    """S4: it lists what the lock file has, with hashes; the exit code tells that nothing was checked."""
    monkeypatch.chdir(ROOT)
    bill = tmp_path / "sbom.json"
    assert UNKNOWN == main(["--bill", str(bill), "--advisories", str(tmp_path / "missing")])
    assert "not checked for vulnerabilities: the advisories in" in capsys.readouterr().out
    document = json.loads(bill.read_text())
    assert "CycloneDX" == document["bomFormat"]
    listed = {each["name"]: each["version"] for each in document["components"]}
    assert pinned((ROOT / "requirements.txt").read_text()) == {
        name.lower(): version for name, version in listed.items()
    }
    again = tmp_path / "again.json"
    (tmp_path / "advisory.json").write_text(json.dumps(advisory({"introduced": "0"}, name="msgspec")))
    given = ["--bill", str(again), "--advisories", str(tmp_path / "advisory.json")]
    assert FOUND == main(given)
    assert 0 == main([*given, "--ignore", "X-1"])
    assert bill.read_bytes() == again.read_bytes()

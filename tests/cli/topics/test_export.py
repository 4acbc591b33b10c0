"""F2: `evenlane topics export`, and `apply` of its file, on a real etcd."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.ports import DeleteKey, PutKey

pytestmark = pytest.mark.real

BACKUP = Path("backup.json")


@pytest.fixture
def wipe(etcd, own_env):
    """Deletes all keys of the environment in etcd."""

    async def work():
        client = EtcdCoordination([etcd.endpoint])
        for item in (await client.list(f"/evenlane/{own_env}/")).items:
            await client.txn([], [DeleteKey(item.key)])
        await client.close()

    return lambda: asyncio.run(work())


def in_effect(topics):
    document = json.loads(topics("list", "--json")[1])
    return {topic["project"]: topic["in_force"] for topic in document["topics"]}


def settings_of(found):
    """The settings without the fields that say when they were accepted."""
    return {project: {**fields, "revision": 0, "number": 0} for project, fields in found.items()}


def test_apply_restores_an_export(topics, wipe):
    topics("set", "acme", "--qps", "100", "--ttl", "1d", "--backoff-base", "2s", "--concurrency", "7")
    topics("set", "globex", "--qps", "100", "--ordered", "--push", '{"url": "https://globex.example/h", "timeout": 5}')
    topics("set", "globex", "--qps", "200")
    topics("set", "rest", "--qps", "2.5", "--weight", "9")
    topics("pause", "rest")
    topics("set", "old", "--qps", "1")
    topics("delete", "old")
    before = in_effect(topics)
    del before["old"]

    code, out, err = topics("export", "--file", str(BACKUP))
    assert (0, f"exported 3 topics to {BACKUP}\n") == (code, out)
    assert "note: old: it is deleted and not in the file, which would recreate it\n" == err
    first = BACKUP.read_bytes()
    assert first == topics("export")[1].encode()
    assert "0 new, 1 changed, 2 unchanged" in topics("apply", str(BACKUP), "--dry-run")[1], "the ordered one is pinned"

    wipe()
    assert {} == in_effect(topics)
    assert (1, "") == topics("export", "--file", str(BACKUP))[:2], "an empty etcd is no reason to lose the backup"
    assert first == BACKUP.read_bytes()

    assert (0, "applied 3, accepted 3") == (
        (done := topics("apply", str(BACKUP), "--yes"))[0],
        done[1].splitlines()[-1],
    )
    assert settings_of(before) == settings_of(in_effect(topics))
    assert first == topics("export")[1].encode()


def test_export_replaces_file_atomically_and_keeps_mode_and_link(topics, tmp_path):
    topics("set", "acme", "--qps", "100")
    real, link = tmp_path / "there" / "topics.json", tmp_path / "topics.json"
    real.parent.mkdir()
    link.symlink_to(real)
    assert 0 == topics("export", "--file", str(link))[0]
    assert 0o600 == real.stat().st_mode & 0o777, "a push may hold what only its endpoint should know"
    real.chmod(0o644)
    with real.open("rb") as read_meanwhile:
        topics("set", "acme", "--qps", "200")
        assert 0 == topics("export", "--file", str(link))[0]
        assert {"acme": {"qps": 100}} == json.load(read_meanwhile)
    assert {"acme": {"qps": 200}} == json.loads(real.read_bytes())
    assert (True, 0o644) == (link.is_symlink(), real.stat().st_mode & 0o777)
    assert ["topics.json"] == [each.name for each in real.parent.iterdir()]


def test_failed_export_leaves_no_file(topics, tmp_path):
    topics("set", "acme", "--qps", "100")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in (
        ("gone/t.json", "can't be written: No such file or directory"),
        ("folder", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("t.toml", "name it *.json"),
    ):
        code, out, err = topics("export", "--file", name)
        assert (2, "") == (code, out)
        assert sentence in err
    assert ["folder", "pipe"] == sorted(each.name for each in tmp_path.iterdir())


def test_export_without_topics_is_an_empty_object(topics):
    assert (0, "{}\n", "") == topics("export")


def test_export_lists_at_most_a_hundred_notes(topics, etcd, own_env):
    async def write_invalid_specs():
        client = EtcdCoordination([etcd.endpoint])
        await client.txn([], [PutKey(f"/evenlane/{own_env}/topics/p{n:03}", b"{}") for n in range(102)])
        await client.close()

    asyncio.run(write_invalid_specs())
    code, out, err = topics("export")
    assert (0, "{}\n", 101) == (code, out, err.count("\n"))
    assert err.startswith("note: p000: its spec can't be accepted (qps is missing")
    assert err.endswith("note: and 2 more\n")

"""`evenlane up --reload`: a saved file replaces the node, a broken one is survived, and the servers stay."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from evenlane.engine.cli.run.reloader import watched_folders
from tests.cli.run.conftest import Command, is_alive
from tests.support.cli.fakes import ROOT
from tests.support.cli.outside import evenlane
from tests.support.until import until

_HANDLER = """
import sys

async def handle(message):
    print("{word}", message.body, file=sys.stderr, flush=True)
"""


def test_folder_of_a_handler_elsewhere_is_watched_too(tmp_path, monkeypatch):
    (tmp_path / "elsewhere_shop.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [tmp_path] == watched_folders("elsewhere_shop:app", tmp_path)
    assert [tmp_path / "here", tmp_path] == watched_folders("elsewhere_shop:app", tmp_path / "here")
    assert [Path("here")] == watched_folders("nowhere_at_all:app", Path("here"))


@pytest.fixture
async def up(tmp_path):
    """`evenlane up --reload` with a handler that says `one`, and a way to put messages."""
    one = Command(tmp_path)
    (tmp_path / "shop.py").write_text(_HANDLER.format(word="one"))
    await one.start(
        "up", "--handler", "shop:handle", "--reload", "--partitions", "2", "--data-dir", str(tmp_path / "d"),
        PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]), EVENLANE_NODE="n",
    )  # fmt: skip
    yield one
    if one.process.returncode is None:
        one.process.kill()


@pytest.mark.real
async def test_saved_file_changes_the_behaviour_and_a_broken_one_is_survived(up, tmp_path):
    ready = dict(part.split("=", 1) for part in (await up.line()).split()[1:])
    servers = ["--nats", ready["nats"], "--etcd", ready["etcd"]]
    assert {"nats", "etcd"} == set(ready)
    assert 0 == (await evenlane("topics", "set", "acme", "--qps", "100", *servers))[0]

    async def handles(word):
        assert 0 == (await evenlane("put", "acme", word, *servers))[0]
        await until(lambda: f"{word} b'{word}'" in up.stderr_text())

    await handles("one")
    first = up.nodes()["n"]
    children = {child.pid for child in psutil.Process(up.process.pid).children()}

    (tmp_path / "shop.py").write_text("async def handle(message)\n")
    await until(lambda: "it starts again when a file changes" in up.stderr_text())
    assert not is_alive(first)
    assert "evenlane: handler 'shop:handle': importing shop failed: SyntaxError" in up.stderr_text()
    assert "Traceback" not in up.stderr_text()

    (tmp_path / "shop.py").write_text(_HANDLER.format(word="two"))
    await until(lambda: "the node is ready again" in up.stderr_text())
    await handles("two")
    now = {child.pid for child in psutil.Process(up.process.pid).children()}
    assert children - {first.pid} == now - {up.nodes()["n"].pid}, "the servers stay"

    last = [psutil.Process(pid) for pid in now]
    os.killpg(up.process.pid, signal.SIGINT)
    assert 0 == await up.ended()
    assert not any(map(is_alive, last))

"""The image, and the chart's pod run from it against real servers."""

import json
import urllib.error
import urllib.request

import pytest

from evenlane import Producer, SyncTopics
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.runtime.embedded.ports import free_port
from tests.deploy.charts import LEAST, merged, node, render
from tests.deploy.pods import Image, Pod, find_missing
from tests.support.until import until

_missing = find_missing()
pytestmark = [
    pytest.mark.full, pytest.mark.real, pytest.mark.source, pytest.mark.timeout(900),
    pytest.mark.skipif(bool(_missing), reason=_missing),
    pytest.mark.xdist_group("image"),
]  # fmt: skip

MOST_BYTES = 130_000_000
HANDLER = """
import os
from pathlib import Path

async def handle(message):
    try:
        Path("/app/written").write_text("x")
    except OSError as error:
        print(message.body.decode(), os.getuid(), type(error).__name__, error.errno, flush=True)
"""
READ_ONLY = 30  # errno EROFS


@pytest.fixture(scope="module")
def image():
    with Image() as built:
        yield built


@pytest.fixture
def settings(nats_server, etcd_server):
    return Settings(nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env="pod", storage="memory")


@pytest.fixture
def pod(image, settings, tmp_path):
    """The pod of the chart with a handler in /app, a token from a secret, and servers on this machine."""
    folders = {name: tmp_path / name for name in ("jobs", "secrets", "bundle")}
    for folder in folders.values():
        folder.mkdir()
        folder.chmod(0o755)
    tmp_path.chmod(0o755)
    (folders["jobs"] / "jobs.py").write_text(HANDLER)
    (folders["secrets"] / "http_token_file").write_text("a-token-of-16-characters")
    values = {
        "handler": "jobs:handle", "environment": settings.env, "config": {"storage": "memory"},
        "nats": {"servers": list(settings.nats)}, "etcd": {"endpoints": list(settings.etcd)},
        "http": {"port": free_port(), "token": {"existingSecret": "token"}},
        "shutdown": {"preStopSeconds": 1},
        "extraVolumes": [{"name": "jobs", "configMap": {"name": "jobs"}}],
        "extraVolumeMounts": [{"name": "jobs", "mountPath": "/app"}],
    }  # fmt: skip
    spec, container = node(render(merged(LEAST, values)))
    running = Pod(image, spec, container, folders, folders["bundle"])
    running.spec, running.container = spec, container
    running.start()
    yield running
    running.remove()


def test_image_is_small_and_has_no_shell(image):
    assert image.size() <= MOST_BYTES
    for name in ("bin/sh", "bin/bash", "usr/bin/apt-get", "usr/bin/dpkg", "usr/bin/perl", "usr/bin/pip"):
        assert not (image.root / name).exists()
    assert ("65532:65532", ["evenlane"]) == (image.config["User"], image.config["Entrypoint"])


def _probe(pod, name):
    """The status of a probe, as the kubelet asks it; None if nothing listens."""
    get = pod.container[f"{name}Probe"]["httpGet"]
    [port] = (each["containerPort"] for each in pod.container["ports"] if each["name"] == get["port"])
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{get['path']}", timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


async def test_pod_starts_handles_and_drains(pod, settings):
    """The pod of the chart runs from its image, with its command, variables, probes, preStop and SIGTERM."""
    await until(lambda: _probe(pod, "startup") == 200, 60)
    await until(lambda: _probe(pod, "readiness") == 200, 60)
    assert 200 == _probe(pod, "liveness")
    with SyncTopics(settings=settings) as topics:
        topics.set("acme", qps=100)
    async with Producer(settings=settings) as producer:
        await producer.put("acme", b"an order")
    lines = [pod.process.stdout.readline().strip() for _ in range(2)]
    assert f"an order 65532 OSError {READ_ONLY}" in lines
    assert any(line.startswith("ready node=evenlane-") for line in lines)
    pod.run(*pod.container["lifecycle"]["preStop"]["exec"]["command"])
    pod.terminate()
    assert 0 == pod.process.wait(pod.spec["terminationGracePeriodSeconds"])
    stopped = [json.loads(line) for line in pod.stderr().splitlines() if '"node stopped"' in line]
    assert [True] == [each["clean"] for each in stopped]

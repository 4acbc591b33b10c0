"""A stand-in for the API server of Kubernetes: the scale subresource of Deployments, over TLS, with a role.

tests/contract/scaler compares its answers with those of the real one.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trustme
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from datetime import datetime
    from pathlib import Path

ACCOUNT = "system:serviceaccount:prod:evenlane"
REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 415: "UnsupportedMediaType"}


class KubernetesApi:
    """`replicas` has each Deployment by (namespace, name). `role` has the verbs that the service account may use on the
    scale of the Deployments in `named`. `requests` are the verbs and paths of all requests.
    """

    def __init__(self, folder: Path) -> None:
        self.replicas: dict[tuple[str, str], int] = {}
        self.named: set[str] = {"nodes"}
        self.role = {"get", "patch"}
        self.tokens = {"first-token"}
        self.requests: list[tuple[str, str]] = []
        self.interfere = False
        """Somebody changes the scale between each GET and PATCH."""
        self.on_change: Callable[[int], object] = lambda _replicas: None
        """Called with the new number, in place of the controllers and the kubelet, which then start or end pods."""
        self.body: bytes | None = None
        """The body of each answer, in place of a Scale."""
        self.expired_on: datetime | None = None
        """When the server's certificate has expired: set it before `serve`."""
        self._version = 100
        self.url = ""
        self.ca, self.token, self.namespace = folder / "ca.crt", folder / "token", folder / "namespace"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.token.write_text("first-token\n")
        self.namespace.write_text("prod")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[KubernetesApi]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert("127.0.0.1", not_after=self.expired_on).configure_cert(context)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        verb = request.method.lower()
        self.requests.append((verb, request.path))
        if request.headers.get("Authorization") not in {f"Bearer {token}" for token in self.tokens}:
            return self._status(401, None, "Unauthorized")
        if self.body is not None:
            return web.Response(body=self.body)
        parts = request.path.strip("/").split("/")
        is_scale = len(parts) == 8 and parts[:4] == ["apis", "apps", "v1", "namespaces"] and parts[7] == "scale"
        namespace, name = (parts[4], parts[6]) if is_scale else ("", "")
        if not is_scale or verb not in self.role or name not in self.named:
            return self._status(
                403,
                {"name": name, "group": "apps", "kind": "deployments"},
                f'deployments.apps "{name}" is forbidden: User "{ACCOUNT}" cannot {verb} resource "deployments/scale"'
                f' in API group "apps" in the namespace "{namespace}"',
            )
        if (namespace, name) not in self.replicas:
            details = {"name": name, "group": "apps", "kind": "deployments/scale"}
            return self._status(404, details, f'deployments/scale.apps "{name}" not found')
        return await self._change(request, namespace, name) if verb == "patch" else self._scale(namespace, name)

    async def _change(self, request: web.Request, namespace: str, name: str) -> web.Response:
        if request.content_type != "application/merge-patch+json":
            return self._status(415, {}, "415: Unsupported Media Type")
        if self.interfere:
            self._version += 1
        patch = await request.json()
        if patch["metadata"]["resourceVersion"] != str(self._version):
            return self._status(
                409,
                {"name": name, "group": "apps", "kind": "deployments"},
                f'Operation cannot be fulfilled on deployments.apps "{name}": the object has been modified; please'
                " apply your changes to the latest version and try again",
            )
        self.replicas[namespace, name] = patch["spec"]["replicas"]
        self._version += 1
        self.on_change(patch["spec"]["replicas"])
        return self._scale(namespace, name)

    def _scale(self, namespace: str, name: str) -> web.Response:
        replicas = self.replicas[namespace, name]
        spec = {"replicas": replicas} if replicas else {}
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(self._version)}
        body: dict[str, Any] = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec}
        return web.json_response(body | {"status": {"replicas": 0, "selector": f"app={name}"}})  # no pod has started

    def _status(self, code: int, details: dict[str, str] | None, message: str) -> web.Response:
        body: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": REASONS[code], "code": code,
        }  # fmt: skip
        return web.json_response(body if details is None else body | {"details": details}, status=code)

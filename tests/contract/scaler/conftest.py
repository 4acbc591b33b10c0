"""A cluster's Deployments and one service account, on the stand-in of the API server and on the real one."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
import pytest

from evenlane.engine.scaler.kubernetes import DeploymentScale
from tests.support.kubernetes.objects import account, deployment, namespace, role, role_binding
from tests.support.kubernetes.stand_in import KubernetesApi

NAMESPACE, ACCOUNT = "prod", "evenlane"
VERBS = ("get", "patch")


class _Cluster:
    """`token` and `ca` are the files of a pod. `url` is the address of the API."""

    def scale(self, name="nodes"):
        return DeploymentScale(self.url, NAMESPACE, name, self.token, self.ca)

    async def ask(self, verb, name="nodes", body=None, *, token=None, form="application/merge-patch+json"):
        """Return status and answer of one request by the service account, without our client."""
        headers = {"Authorization": f"Bearer {token or self.token.read_text().strip()}"}
        headers |= {} if body is None else {"Content-Type": form}
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}/scale"
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(self.ca)))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(verb, self.url + path, json=body, headers=headers) as response,
        ):
            return response.status, await response.json(content_type=None)


class StandIn(_Cluster):
    def __init__(self, api):
        self._api, self.url, self.token, self.ca = api, api.url, api.token, api.ca

    async def create(self, replicas, name="nodes"):
        self._api.replicas[NAMESPACE, name] = replicas

    async def allow(self, *verbs, names=("nodes",)):
        self._api.role, self._api.named = set(verbs), set(names)

    async def replicas(self, name="nodes"):
        return self._api.replicas[NAMESPACE, name]


class RealCluster(_Cluster):
    """Its objects are created again for each test."""

    def __init__(self, server, folder):
        self._server, self.url, self.ca, self.token = server, server.url, server.ca, folder / "token"

    async def begin(self):
        await self._server.request("post", "/api/v1/namespaces", namespace(NAMESPACE))
        await self._server.request("post", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account(ACCOUNT))
        self.token.write_text(await self._server.issue_token(NAMESPACE, ACCOUNT))
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        await self._server.request("post", f"{rbac}/rolebindings", role_binding(NAMESPACE, ACCOUNT))
        status, listed = await self._server.request("get", self._path())
        assert 200 == status, listed
        for each in listed["items"]:
            await self._server.request("delete", self._path(each["metadata"]["name"]))

    async def create(self, replicas, name="nodes"):
        await self._server.create(self._path(), deployment(name, replicas))

    async def allow(self, *verbs, names=("nodes",)):
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
        await self._server.request("delete", f"{path}/{ACCOUNT}")
        await self._server.create(path, role(ACCOUNT, verbs, names))
        await self._follow_role(verbs, names)

    async def replicas(self, name="nodes"):
        status, found = await self._server.request("get", self._path(name))
        assert 200 == status, found
        return found["spec"]["replicas"]

    async def _follow_role(self, verbs, names):
        """Wait until the API server, which watches roles, knows this one."""
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        for verb in VERBS:
            attributes = {
                "namespace": NAMESPACE, "verb": verb, "group": "apps", "resource": "deployments",
                "subresource": "scale", "name": names[0],
            }  # fmt: skip
            body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            body["spec"] = {"resourceAttributes": attributes}
            for _ in range(1_000):
                _, answer = await self._server.request("post", path, body, token=self.token.read_text())
                if answer["status"]["allowed"] == (verb in verbs):
                    break
                await asyncio.sleep(0.01)

    def _path(self, *name):
        return "/".join([f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", *name])


@pytest.fixture(params=["stand-in", pytest.param("api-server", marks=pytest.mark.kubernetes)])
def server(request):
    return None if request.param == "stand-in" else request.getfixturevalue("api_server")


@pytest.fixture
async def cluster(server, tmp_path):
    if server is None:
        async with KubernetesApi(tmp_path).serve() as api:
            yield StandIn(api)
    else:
        made = RealCluster(server, tmp_path)
        await made.begin()
        await made.allow(*VERBS)
        yield made

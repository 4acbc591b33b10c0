"""The chart, installed by Helm in a real API server, and the leader that scales its Deployment (P10, S4)."""

import re
from dataclasses import replace

import pytest

from evenlane import Settings
from evenlane.engine.scaler.kubernetes import DeploymentScale
from tests.deploy.charts import NAMESPACE, SCALED, merged, render
from tests.support.kubernetes.objects import deployment
from tests.support.node.running import running_engine
from tests.support.until import until

pytestmark = pytest.mark.kubernetes

# Kubernetes 1.20 has no policy/v1.
_OLD = {"podDisruptionBudget": {"enabled": False}}
VALUES = {mode: merged(SCALED[mode], _OLD) for mode in ("off", "leader")}
PATHS = {
    "Deployment": "/apis/apps/v1", "NetworkPolicy": "/apis/networking.k8s.io/v1", "Service": "/api/v1",
    "ServiceAccount": "/api/v1", "Role": "/apis/rbac.authorization.k8s.io/v1", "ConfigMap": "/api/v1",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1",
}  # fmt: skip
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


def path_of(kind, name):
    plural = "networkpolicies" if kind == "NetworkPolicy" else f"{kind.lower()}s"
    return f"{PATHS[kind]}/namespaces/{NAMESPACE}/{plural}/{name}"


def find_lost(sent, stored, where=""):
    """The paths of what was sent and isn't stored."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [lost for key in sent for lost in find_lost(sent[key], stored.get(key), f"{where}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [lost for one, other in zip(sent, stored, strict=True) for lost in find_lost(one, other, f"{where}[]")]
    return [] if sent == stored or (sent in ({}, [], None) and not stored) else [where]


@pytest.mark.parametrize("mode", VALUES)
async def test_api_server_stores_each_object_as_rendered(mode, release, api_server):
    """P10: it knows each field, and changes none."""
    release.install(VALUES[mode])
    rendered = {each: item for each, item in render(VALUES[mode]).items() if each[0] != "Pod"}  # the Pod is the test
    lost = {}
    for (kind, name), sent in rendered.items():
        status, stored = await api_server.request("get", path_of(kind, name))
        assert 200 == status, stored
        lost[kind] = find_lost(sent, stored)
    assert {kind: [] for kind, _ in rendered} == lost
    release.uninstall()
    left = [(await api_server.request("get", path_of(*each)))[0] for each in rendered]
    assert [404] * len(rendered) == left


@pytest.fixture
async def pod(release, api_server, tmp_path):
    """The settings of a node in a pod of the chart, with the token of its service account."""
    release.install(VALUES["leader"])
    spec = render(VALUES["leader"])["Deployment", "shop-evenlane"]["spec"]["template"]["spec"]
    token = tmp_path / "token"
    token.write_text(await api_server.issue_token(NAMESPACE, spec["serviceAccountName"]))
    [container] = spec["containers"]
    named = {each["name"]: each.get("value") for each in container["env"]}["EVENLANE_SCALING_DEPLOYMENT"]
    return Settings(
        scaling="leader", scaling_deployment=named, scaling_namespace=NAMESPACE, scaling_api=api_server.url,
        scaling_token_file=token, scaling_ca=api_server.ca,
    )  # fmt: skip


async def replicas(api_server):
    return (await api_server.request("get", f"{DEPLOYMENTS}/shop-evenlane"))[1]["spec"]["replicas"]


async def test_leader_scales_its_deployment_and_an_upgrade_keeps_the_number(
    pod, release, api_server, nats_server, etcd_server
):
    """P10: one node has started, and two are the least."""
    assert 1 == await replicas(api_server)
    settings = replace(
        pod, nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env="kubernetes", partitions=4, node="a",
        scaling_interval=1.0, http_port=0,
    )  # fmt: skip
    async with running_engine(settings):
        await until(lambda: _has(api_server, 2))
    release.upgrade(merged(VALUES["leader"], {"image": {"tag": "1.3"}}))
    status, found = await api_server.request("get", f"{DEPLOYMENTS}/shop-evenlane")
    assert (200, 2) == (status, found["spec"]["replicas"])
    assert "shop:1.3" == found["spec"]["template"]["spec"]["containers"][0]["image"]


async def _has(api_server, expected):
    return await replicas(api_server) == expected


async def test_service_account_reaches_nothing_but_the_scale(pod, api_server):
    """S4: least privilege."""
    await api_server.request("post", DEPLOYMENTS, deployment("other", 3))
    token = pod.scaling_token_file.read_text()
    core = f"/api/v1/namespaces/{NAMESPACE}"
    own = f"{DEPLOYMENTS}/shop-evenlane"
    refused = [
        ("get", own), ("patch", own), ("delete", own), ("get", DEPLOYMENTS), ("put", f"{own}/scale"),
        ("get", f"{DEPLOYMENTS}/other/scale"), ("patch", f"{DEPLOYMENTS}/other/scale"), ("get", f"{core}/pods"),
        ("get", f"{core}/secrets"), ("get", f"{core}/configmaps"), ("get", "/api/v1/nodes"),
    ]  # fmt: skip
    answers = {}
    for verb, path in refused:
        body = {"spec": {"replicas": 0}} if verb in {"patch", "put"} else None
        answers[verb, path], _ = await api_server.request(verb, path, body, token=token)
    assert dict.fromkeys(refused, 403) == answers
    status, _ = await api_server.request("get", f"{own}/scale", token=token)
    assert 200 == status


async def test_chart_of_a_wrong_value_changes_nothing(release, api_server):
    """P10: one sentence, and nothing is installed."""
    with pytest.raises(Exception, match=re.escape("at '/scaling/min'")):
        release.install(merged(VALUES["leader"], {"scaling": {"min": "two"}}))
    status, _ = await api_server.request("get", f"{DEPLOYMENTS}/shop-evenlane")
    assert 404 == status


async def test_scale_is_that_of_the_installed_deployment(pod):
    """P10."""
    assert pod.scaling_token_file is not None
    target = DeploymentScale(
        pod.scaling_api, NAMESPACE, pod.scaling_deployment, pod.scaling_token_file, pod.scaling_ca
    )  # fmt: skip
    scale = await target.read()
    await target.change(7, scale.version)
    assert 7 == (await target.read()).replicas

"""The scale of a Deployment: requests, certificates, and answers that are no scale (P10).

tests/contract/scaler has what the real API server answers, too.
"""

from datetime import UTC, datetime

import pytest

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.control.scaling.target import Scale, ScaleError
from evenlane.engine.errors import ConfigError
from evenlane.engine.scaler.kubernetes import DeploymentScale, find_deployment
from tests.support.kubernetes.stand_in import KubernetesApi

PATH = "/apis/apps/v1/namespaces/prod/deployments/nodes/scale"


@pytest.fixture
async def api(tmp_path):
    made = KubernetesApi(tmp_path)
    made.replicas["prod", "nodes"] = 3
    async with made.serve():
        yield made


def deployment(api, name="nodes"):
    return DeploymentScale(api.url, "prod", name, api.token, api.ca)


async def refusal(call):
    with pytest.raises(ScaleError) as caught:
        await call
    return str(caught.value)


async def test_reads_and_changes_the_replicas_with_two_requests(api):
    """P10: nothing but the scale of this one Deployment is touched."""
    target = deployment(api)
    scale = await target.read()
    await target.change(5, scale.version)
    assert (Scale(3, "100"), 5) == (scale, api.replicas["prod", "nodes"])
    assert [("get", PATH), ("patch", PATH)] == api.requests
    await target.change(6, (await target.read()).version)
    assert 6 == api.replicas["prod", "nodes"]


async def test_api_with_another_certificate_gets_no_token(api, tmp_path):
    """P10."""
    (tmp_path / "other").mkdir()
    other = KubernetesApi(tmp_path / "other")
    target = DeploymentScale(api.url, "prod", "nodes", api.token, other.ca)
    assert (await refusal(target.read())).startswith(f"the Kubernetes API at {api.url} can't be reached: ")
    assert [] == api.requests


async def test_api_that_is_away(api, tmp_path):
    """P10."""
    target = DeploymentScale("https://127.0.0.1:9", "prod", "nodes", api.token, api.ca)
    assert (await refusal(target.read())).startswith("the Kubernetes API at https://127.0.0.1:9 can't be reached: ")
    api.token.unlink()
    assert (await refusal(target.read())).startswith("the token for the Kubernetes API can't be read: ")


async def test_expired_certificate_of_the_api_is_named_with_its_date(tmp_path):
    """P10, S3: as for NATS and etcd; no token is sent."""
    api = KubernetesApi(tmp_path)
    api.expired_on = datetime(2021, 3, 4, 5, 6, tzinfo=UTC)
    async with api.serve():
        expected = f"the certificate of the Kubernetes API at {api.url} expired on 2021-03-04 05:06 UTC"
        assert expected == await refusal(deployment(api).read())
    assert [] == api.requests


@pytest.mark.parametrize("content", ["first\nsecond", "first second", "first\rsecond", "", "fir\xe9st"])
async def test_file_without_one_token_is_named_and_its_content_is_not(api, content):
    """P10."""
    api.token.write_text(content, encoding="utf-8")
    assert await refusal(deployment(api).read()) == (
        f"{api.token} has no valid token for the Kubernetes API: it must be one line of ASCII, without spaces"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"metadata": {"resourceVersion": "\xff"}}',
        b'{"spec": {"replicas": "3"}}',
        b'{"x": ' + b"[" * 100_000,
        b'{"spec": {"replicas": ' + b"9" * 10_000 + b"}}",
        b" " * 2_000_000,
    ],
    ids=lambda body: body[:40],
)
async def test_answer_that_is_no_scale_is_one_sentence(api, body):
    """P10: whatever listens there, and however much it sends."""
    api.body = body
    assert (await refusal(deployment(api).read())).startswith(f"the answer of {api.url} is no scale: ")


async def test_answer_that_comes_in_parts_is_read_whole(api):
    """P10: it may be long, as anybody's annotations are in it."""
    api.body = b'{"metadata": {"note": "' + b"x" * 900_000 + b'", "resourceVersion": "7"}, "spec": {"replicas": 5}}'
    assert Scale(5, "7") == await deployment(api).read()


def settings(**given):
    return Settings(scaling="leader", scaling_deployment="nodes", **given)


def test_pod_needs_only_the_name_of_the_deployment(tmp_path):
    """P10: address, namespace, token and CA are those that Kubernetes gives each pod."""
    KubernetesApi(tmp_path)
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    target = find_deployment(settings(), environ, tmp_path)
    assert isinstance(target, DeploymentScale)
    assert isinstance(
        find_deployment(settings(), environ | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path), DeploymentScale
    )


async def test_settings_go_before_what_the_pod_has(api, tmp_path):
    """P10."""
    api.replicas["other", "nodes"] = 7
    given = settings(
        scaling_api=api.url, scaling_namespace="other", scaling_token_file=api.token, scaling_ca=api.ca
    )  # fmt: skip
    target = find_deployment(given, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path / "none")
    assert 7 == (await target.read()).replicas


@pytest.mark.parametrize(
    ("given", "environ", "missing"),
    [
        ({}, {}, "run the node in a pod, or set scaling_api"),
        ({"scaling_api": "https://a"}, {}, "run the node in a pod, or set scaling_namespace"),
        (
            {"scaling_api": "https://a", "scaling_namespace": "prod"},
            {},
            "/token is not a file, so set scaling_token_file",
        ),
    ],
)
def test_outside_of_a_pod_a_sentence_says_what_is_missing(given, environ, missing, tmp_path):
    """P10."""
    with pytest.raises(ConfigError) as caught:
        find_deployment(settings(**given), environ, tmp_path / "none")
    assert str(caught.value).startswith("scaling: leader needs the Kubernetes API: ")
    assert str(caught.value).endswith(missing)

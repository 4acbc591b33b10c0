"""Wrong values of the chart: each is refused with a sentence that names it."""

import helm_python as helm
import pytest

from tests.deploy.charts import LEAST, merged, render

pytestmark = pytest.mark.source


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"replicas": "two"}, "at '/replicas': got string, want integer"),
        ({"replcas": 2}, "additional properties 'replcas' not allowed"),
        ({"image": {"tags": "1"}}, "at '/image': additional properties 'tags' not allowed"),
        ({"config": {"concurency": 3}}, "at '/config': additional properties 'concurency' not allowed"),
        ({"config": {"storage": "disk"}}, "at '/config/storage': value must be one of 'file', 'memory'"),
        ({"config": {"nats": "nats://n:4222"}}, "at '/config': additional properties 'nats' not allowed"),
        ({"scaling": {"mode": "both"}}, "at '/scaling/mode': value must be one of 'off', 'leader', 'keda', 'hpa'"),
        ({"nats": {"servers": ["nats:4222"]}}, "at '/nats/servers/0': 'nats:4222' does not match pattern"),
        ({"handler": "shop.jobs"}, "at '/handler': 'shop.jobs' does not match pattern"),
        ({"http": {"port": 80}}, "at '/http/port': minimum: got 80, want 1,024"),
        ({"resources": {"limit": {}}}, "at '/resources': additional properties 'limit' not allowed"),
        ({"handler": ""}, "handler is missing: name it as MODULE:FUNCTION or MODULE:APP"),
        ({"image": {"repository": ""}}, "image.repository is missing: name an image"),
        ({"image": {"tag": ""}}, "image needs a tag or a digest"),
        ({"nats": {"servers": []}}, "nats.servers is empty: name your NATS servers"),
        ({"etcd": {"endpoints": []}}, "etcd.endpoints is empty: name the members of your etcd"),
        ({"scaling": {"min": 5, "max": 3}}, "scaling.min (5) is above scaling.max (3)"),
        ({"scaling": {"mode": "hpa"}}, "scaling.mode is hpa, but scaling.hpa.metrics is empty"),
        ({"nats": {"user": "node"}}, "nats.user is set without nats.password.existingSecret"),
        ({"etcd": {"password": {"existingSecret": "p"}}}, "etcd.password is set without etcd.user"),
        (
            {"reports": {"enabled": True, "image": {"repository": "spark", "tag": "1"}}},
            "reports.existingClaim is empty: name the claim",
        ),
        (
            {"reports": {"enabled": True, "existingClaim": "r"}},
            "reports.image.repository is missing: name an image",
        ),
    ],
)  # fmt: skip
def test_wrong_value_is_named(given, sentence):
    with pytest.raises(helm.HelmError) as refused:
        render(merged(LEAST, given))
    assert sentence in str(refused.value)


def test_digest_takes_the_place_of_a_tag():
    digest = f"sha256:{'0' * 64}"
    objects = render(merged(LEAST, {"image": {"digest": digest}}))
    [container] = objects["Deployment", "shop-evenlane"]["spec"]["template"]["spec"]["containers"]
    assert f"shop@{digest}" == container["image"]

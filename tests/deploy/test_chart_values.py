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
        ({"config": None}, "at '': missing property 'config'"),  # each line of the block is a comment
        ({"http": {"certificate": None}}, "at '/http': missing property 'certificate'"),
        ({"scaling": {"keda": {"fallback": {"failureThreshold": 3}}}}, "properties 'replicas' required, if"),
        ({"config": {"concurency": 3}}, "at '/config': additional properties 'concurency' not allowed"),
        ({"config": {"storage": "disk"}}, "at '/config/storage': value must be one of 'file', 'memory'"),
        ({"config": {"nats": "nats://n:4222"}}, "config.nats can't be set: set nats.servers instead"),
        ({"config": {"drain_grace": 9}}, "config.drain_grace can't be set: set shutdown.drainSeconds instead"),
        ({"config": {"scaling": "keda"}}, "config.scaling can't be set: set scaling.mode instead"),
        ({"config": {"node": "n"}}, "config.node can't be set: the chart sets it"),
        ({"config": {"concurrency": "many"}}, "at '/config/concurrency': got string, want integer"),
        ({"config": {"partitions": 0}}, "at '/config/partitions': minimum: got 0, want 1"),
        ({"config": {"replicas": 7}}, "at '/config/replicas': maximum: got 7, want 5"),
        ({"config": {"lease_ttl": "soon"}}, "at '/config/lease_ttl': 'soon' does not match pattern"),
        ({"config": {"lease_ttl": "1500ms"}}, 'config.lease_ttl "1500ms" is not a duration from 1s to 10m, in whole'),
        ({"config": {"block_limit": "10ms"}}, 'config.block_limit "10ms" is not 0 or a duration from 1s to 1d'),
        ({"config": {"feed_budget": "61MiB"}}, 'config.feed_budget "61MiB" is not a size from 1MiB to 60MiB'),
        ({"config": {"push_private": "maybe"}}, "at '/config/push_private': got string, want boolean"),
        ({"config": {"projects": ["a.b"]}}, "at '/config/projects/0': 'a.b' does not match pattern"),
        ({"config": {"group_qps": 9, "max_group_qps": 3}}, "config.group_qps (9) is above config.max_group_qps (3)"),
        ({"config": {"group_qps": 200}}, "config.group_qps (200) is above config.max_group_qps (150)"),
        ({"config": {"max_group_qps": 40}}, "config.group_qps (50) is above config.max_group_qps (40)"),
        ({"config": {"dead_letter_keep": "10s"}}, "dead_letter_keep (10s) is less than config.duplicate_window (30s)"),
        ({"environment": "a b"}, 'environment "a b" is not valid: 1 to 64 letters, digits or'),
        ({"environment": "my.env"}, 'environment "my.env" is not valid: 1 to 64 letters, digits or'),
        ({"environment": 5}, "at '/environment': got number, want string"),
        ({"config": {"scaling_policy": "need"}}, "need, but has no target: set config.scaling_target"),
        ({"config": {"scaling_target": "p99 wait 2s"}}, "the policy rules has no target: leave it out"),
        (
            {"config": {"scaling_policy": "need", "scaling_target": "p99"}},
            'config.scaling_target "p99" is not a target: write p99 wait 2s',
        ),
        (
            {"config": {"scaling_cpu": "0%", "scaling_projects_above": 0, "scaling_projects_below": 0}},
            "config.scaling_policy is rules, but has no metric: set config.scaling_cpu",
        ),
        (
            {"config": {"scaling_projects_below": 60}},
            "config.scaling_projects_below (60) is not below config.scaling_projects_above (50)",
        ),
        ({"scaling": {"max": 20_000}}, "at '/scaling/max': maximum: got 20,000, want 10,000"),
        (
            {"scaling": {"mode": "leader"}, "networkPolicy": {"egress": {"enabled": True}}},
            "allows nobody to reach the Kubernetes API: add its address to networkPolicy.egress.to",
        ),
        ({"reports": {"schedule": "nope"}}, 'reports.schedule "nope" is not a schedule of cron: write five fields'),
        (
            {"extraEnv": [{"name": "EVENLANE_SCALING", "value": "off"}]},
            "extraEnv can't set EVENLANE_SCALING: set scaling.mode instead",
        ),
        (
            {"extraEnv": [{"name": "EVENLANE_SCALING_POLICY", "value": "need"}]},
            "extraEnv can't set EVENLANE_SCALING_POLICY: set config.scaling_policy instead",
        ),
        (
            {"extraEnv": [{"name": "EVENLANE_DRAIN_GRACE", "value": "9"}]},
            "extraEnv can't set EVENLANE_DRAIN_GRACE: set shutdown.drainSeconds instead",
        ),
        (
            {"extraEnv": [{"name": "EVENLANE_HTTP_PORT", "value": "9"}]},
            "extraEnv can't set EVENLANE_HTTP_PORT: set http.port instead",
        ),
        (
            {"extraEnv": [{"name": "EVENLANE_NATS_USER", "value": "u"}]},
            "extraEnv can't set EVENLANE_NATS_USER: set nats.user instead",
        ),
        (
            {"config": {"concurrency": 9}, "extraEnv": [{"name": "EVENLANE_CONCURRENCY", "value": "8"}]},
            "extraEnv can't set EVENLANE_CONCURRENCY: set config.concurrency instead",
        ),
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

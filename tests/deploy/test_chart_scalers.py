"""The chart's scalers: one at a time, with no more rights than it needs."""

import pytest

from evenlane.engine.base.config.settings import load
from tests.deploy.charts import SCALED, environ_of, merged, node, render

pytestmark = pytest.mark.source


@pytest.mark.parametrize("mode", SCALED)
def test_exactly_one_scaler(mode):
    """No other scaler, and nothing that resets its number at an upgrade."""
    objects = render(SCALED[mode])
    kinds = {kind for kind, _ in objects} & {"Role", "RoleBinding", "ScaledObject", "HorizontalPodAutoscaler"}
    expected = {
        "off": set(),
        "leader": {"Role", "RoleBinding"},
        "keda": {"ScaledObject"},
        "hpa": {"HorizontalPodAutoscaler"},
    }
    assert expected[mode] == kinds
    deployment = objects["Deployment", "shop-evenlane"]["spec"]
    assert (mode == "off") == ("replicas" in deployment)
    assert (mode == "leader") == deployment["template"]["spec"]["automountServiceAccountToken"]


def test_leader_may_change_one_number():
    """The role has the scale of this Deployment, and nothing else; its subject is the pods' account."""
    objects = render(SCALED["leader"])
    rule = {
        "apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["shop-evenlane"],
        "verbs": ["get", "patch"],
    }  # fmt: skip
    assert [rule] == objects["Role", "shop-evenlane-scaler"]["rules"]
    [subject] = objects["RoleBinding", "shop-evenlane-scaler"]["subjects"]
    assert node(objects)[0]["serviceAccountName"] == subject["name"]


def test_keda_reaches_a_node():
    """The trigger's address is a Service, which selects the nodes' port."""
    objects = render(merged(SCALED["keda"], {"environment": "night", "scaling": {"min": 3, "max": 9}}))
    scaled = objects["ScaledObject", "shop-evenlane"]["spec"]
    assert (3, 9) == (scaled["minReplicaCount"], scaled["maxReplicaCount"])
    [trigger] = scaled["triggers"]
    assert "fallback" not in scaled
    fallback = {"failureThreshold": 3, "replicas": 6}
    given = render(merged(SCALED["keda"], {"scaling": {"keda": {"fallback": fallback}}}))
    assert fallback == given["ScaledObject", "shop-evenlane"]["spec"]["fallback"]
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    assert {"horizontalPodAutoscalerConfig": {"behavior": behavior}} == scaled["advanced"]
    expected = {"scalerAddress": "shop-evenlane-scaler.prod.svc:6000", "env": "night"}
    assert ("external", expected) == (trigger["type"], trigger["metadata"])
    service = objects["Service", "shop-evenlane-scaler"]["spec"]
    _, container = node(objects)
    assert {"name": "scaler", "containerPort": 6000, "protocol": "TCP"} in container["ports"]
    _, ingress = objects["NetworkPolicy", "shop-evenlane"]["spec"]["ingress"]
    keda = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}
    assert {"ports": [{"port": "scaler"}], "from": [keda]} == ingress
    assert ("scaler", 6000) == (service["ports"][0]["targetPort"], service["ports"][0]["port"])


@pytest.mark.parametrize("mode", SCALED)
def test_node_accepts_the_settings_of_its_scaler(mode, tmp_path):
    """The node scales as the chart does, within the same bounds."""
    _, container = node(render(merged(SCALED[mode], {"scaling": {"min": 3, "max": 9}})))
    settings = load({}, environ_of(container, tmp_path)).settings
    assert mode == settings.scaling
    if mode != "off":
        assert (3, 9) == (settings.scaling_min, settings.scaling_max)
    if mode == "leader":
        assert "shop-evenlane" == settings.scaling_deployment
    if mode == "keda":
        assert "0.0.0.0:6000" == settings.scaling_listen

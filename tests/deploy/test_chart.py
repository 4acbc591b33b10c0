"""The chart: what it renders, by Helm's own engine, against the schemas of Kubernetes."""

import subprocess
import sys

import helm_python as helm
import kubernetes_validate
import pytest
import yaml

from evenlane.engine.base.config.settings import load
from tests.dashboards.files import program
from tests.deploy.charts import CHART, LEAST, MOST, SCALED, SECRET_OF, merged, node, pod_specs, render
from tests.support import ROOT

pytestmark = pytest.mark.source

EXAMPLES = {"least": LEAST, "most": MOST, **SCALED}
# Of custom resources; their fields are checked one by one below.
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject"}
VERSIONS = [each for each in kubernetes_validate.utils.all_versions() if each.startswith("1.")]


def test_generated_parts_are_current():
    checked = subprocess.run(
        [sys.executable, ROOT / "deploy/generate_chart.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (0, "") == (checked.returncode, checked.stdout + checked.stderr)


@pytest.mark.parametrize("example", EXAMPLES)
def test_lint_finds_nothing(example):
    found = helm.lint(CHART, EXAMPLES[example], strict=True)
    assert [] == found["errors"]
    assert [] == [each for each in found["messages"] if each["severity"] > 1]


def test_all_current_versions_have_schemas():
    assert {"1.25.0", "1.30.0", "1.37.0"} <= set(VERSIONS)


@pytest.mark.parametrize("version", [VERSIONS[0], "1.30.0", VERSIONS[-1]])
@pytest.mark.parametrize("example", EXAMPLES)
def test_objects_are_valid_for_kubernetes(example, version):
    """Each object has only fields that this version of Kubernetes knows, and of the right types."""
    objects = render(EXAMPLES[example])
    for (kind, _), each in objects.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)
    assert {"Deployment", "NetworkPolicy", "PodDisruptionBudget"} <= {kind for kind, _ in objects}


def test_validation_finds_an_unknown_field():
    """The test above can fail."""
    objects = render(LEAST)
    objects["Deployment", "shop-evenlane"]["spec"]["template"]["spec"]["containers"][0]["port"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="port"):
        kubernetes_validate.validate(objects["Deployment", "shop-evenlane"], "1.30.0", strict=True)


def _environ(container, folder):
    """The variables of a container, with files in `folder` in place of its mounts."""
    environ = {}
    for each in container["env"]:
        value = each.get("value", "shop-evenlane-x7k2p")
        if value.startswith("/etc/evenlane"):
            path = folder / value.removeprefix("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(exist_ok=True) if each["name"].endswith("SECRETS") else path.write_text("text")
            value = str(path)
        environ[each["name"]] = value
    return environ


@pytest.mark.parametrize("example", ["least", "most"])
def test_node_accepts_its_variables(example, tmp_path):
    """Each variable is a setting, with a value that a node takes."""
    _, container = node(render(EXAMPLES[example]))
    settings = load({}, _environ(container, tmp_path)).settings
    assert "shop-evenlane-x7k2p" == settings.node
    assert ("nats://nats-1:4222", "nats://nats-2:4222") == settings.nats
    assert ("etcd-1:2379", "etcd-2:2379") == settings.etcd
    assert ("0.0.0.0", 8080) == (settings.http_host, settings.http_port)
    if example == "most":
        assert (200, 3, ("high", "low")) == (settings.concurrency, settings.replicas, settings.priorities)
        assert (128 * 2**20, 2**53, True) == (
            settings.payload_budget,
            settings.max_queue_backlog,
            settings.push_private,
        )


def test_each_credential_comes_from_a_secret():
    """The variable names a file, and the projected volume has this file from the secret of the value."""
    spec, container = node(render(MOST))
    variables = {each["name"]: each.get("value") for each in container["env"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    sources = {
        source["secret"]["items"][0]["path"]: (source["secret"]["name"], source["secret"]["items"][0]["key"])
        for source in volumes["secrets"]["projected"]["sources"]
    }
    expected = {setting: (f"{server}-{value}", "the-key") for setting, (server, value) in SECRET_OF.items()}
    for server in ("nats", "etcd", "http"):
        expected[f"{server}_cert"] = (f"{server}-tls", "tls.crt")
        expected[f"{server}_key"] = (f"{server}-tls", "tls.key")
    assert expected == sources
    for setting in sources:
        assert f"{mounts['secrets']}/{setting}" == variables[f"EVENLANE_{setting.upper()}"]
    assert {"secretName": "endpoints", "defaultMode": 0o440} == volumes["push-secrets"]["secret"]
    assert mounts["push-secrets"] == variables["EVENLANE_PUSH_SECRETS"]
    creds = merged(LEAST, {"nats": {"creds": {"existingSecret": "jwt"}}})
    spec, container = node(render(creds))
    assert {"EVENLANE_NATS_CREDS_FILE": "/etc/evenlane/secrets/nats_creds_file"}.items() <= {
        each["name"]: each.get("value") for each in container["env"]
    }.items()


def test_pod_ends_only_after_its_drain():
    """The kubelet's grace covers preStop, the whole drain, and the end of the process."""
    for given in ({}, {"preStopSeconds": 0, "drainSeconds": 600, "marginSeconds": 30}):
        spec, container = node(render(merged(LEAST, {"shutdown": given})))
        shutdown = {"preStopSeconds": 3, "drainSeconds": 25, "marginSeconds": 7} | given
        assert sum(shutdown.values()) == spec["terminationGracePeriodSeconds"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert str(shutdown["drainSeconds"]) == variables["EVENLANE_DRAIN_GRACE"]
        assert ("lifecycle" in container) == bool(shutdown["preStopSeconds"])


def test_probes_leave_room_for_the_start_and_for_slow_servers():
    _, container = node(render(LEAST))
    start, live, ready = (container[f"{name}Probe"] for name in ("startup", "liveness", "readiness"))
    assert ["/healthz", "/healthz", "/readyz"] == [each["httpGet"]["path"] for each in (start, live, ready)]
    assert {"http"} == {each["httpGet"]["port"] for each in (start, live, ready)}
    assert {"HTTP"} == {each["httpGet"]["scheme"] for each in (start, live, ready)}
    assert start["periodSeconds"] * start["failureThreshold"] >= 90
    assert ready["timeoutSeconds"] > 2  # a round trip to NATS or etcd may take this long


def test_with_a_certificate_all_clients_use_https():
    """P10: probes, the Service, Prometheus and `helm test` know that the port takes HTTPS only."""
    objects = render(MOST)
    _, container = node(objects)
    assert {"HTTPS"} == {
        container[f"{name}Probe"]["httpGet"]["scheme"] for name in ("startup", "liveness", "readiness")
    }
    [port] = objects["Service", "shop-evenlane"]["spec"]["ports"]
    assert (443, "http") == (port["port"], port["targetPort"])
    [endpoint] = objects["PodMonitor", "shop-evenlane"]["spec"]["podMetricsEndpoints"]
    authority = {"secret": {"name": "http-tls", "key": "ca.crt"}}
    assert ("https", {"serverName": "shop-evenlane.prod.svc", "ca": authority}) == (
        endpoint["scheme"],
        endpoint["tlsConfig"],
    )
    [test] = pod_specs(objects)["shop-evenlane-test"]["containers"]
    assert '"https://shop-evenlane.prod.svc/readyz"' in test["args"][0]
    own = {"insecureSkipVerify": True}
    given = merged(MOST, {"monitoring": {"podMonitor": {"tlsConfig": own}}})
    [endpoint] = render(given)["PodMonitor", "shop-evenlane"]["spec"]["podMetricsEndpoints"]
    assert own == endpoint["tlsConfig"]


def test_each_pod_is_restricted():
    """Pod Security Standard `restricted`, and a root file system that can't be written."""
    specs = pod_specs(render(MOST))
    assert {"shop-evenlane", "shop-evenlane-report", "shop-evenlane-test"} == set(specs)
    for spec in specs.values():
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert {"type": "RuntimeDefault"} == spec["securityContext"]["seccompProfile"]
        for container in spec["containers"]:
            allowed = {
                "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
            }  # fmt: skip
            assert allowed == container["securityContext"]
            assert {"cpu", "memory"} == set(container["resources"]["limits"])


def test_report_runs_as_a_user_that_has_a_name_in_its_image():
    """Spark doesn't start for a user without a name. The claim must be writable for it."""
    report = pod_specs(render(MOST))["shop-evenlane-report"]
    kept = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert kept | dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), 185) == report["securityContext"]
    assert 65532 == node(render(MOST))[0]["securityContext"]["runAsUser"]


def test_pods_spread_and_are_evicted_one_at_a_time():
    objects = render(LEAST)
    spec, _ = node(objects)
    labels = objects["Deployment", "shop-evenlane"]["spec"]["template"]["metadata"]["labels"]
    budget = objects["PodDisruptionBudget", "shop-evenlane"]["spec"]
    own = objects["Deployment", "shop-evenlane"]["spec"]["selector"]
    assert 1 == budget["maxUnavailable"]
    assert {"kubernetes.io/hostname", "topology.kubernetes.io/zone"} == {
        each["topologyKey"] for each in spec["topologySpreadConstraints"]
    }
    policy = objects["NetworkPolicy", "shop-evenlane"]["spec"]["podSelector"]
    for selector in (
        budget["selector"],
        policy,
        *(each["labelSelector"] for each in spec["topologySpreadConstraints"]),
    ):
        assert own == selector
        assert selector["matchLabels"].items() <= labels.items()
    report = render(MOST)["CronJob", "shop-evenlane-report"]["spec"]["jobTemplate"]["spec"]["template"]
    assert not policy["matchLabels"].items() <= report["metadata"]["labels"].items()


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


def test_rules_are_those_of_the_repository(tmp_path):
    """The same rules, with bases before the addresses; promtool accepts them."""
    monitoring = {"runbookBase": "https://wiki.example/", "grafanaBase": "https://grafana.example"}
    objects = render(merged(MOST, {"monitoring": {"rules": monitoring}}))
    spec = objects["PrometheusRule", "shop-evenlane"]["spec"]
    names = [group["name"] for group in spec["groups"]]
    sources = {}
    for name in ("targets", "shared", "alerts"):
        sources |= {each["name"]: each for each in _rules(name)["groups"]}
    assert len(names) == len(set(names))
    assert set(sources) == set(names)
    for group in spec["groups"]:
        if group["name"] == "evenlane-targets":
            assert _targets(sources[group["name"]]) == _targets(group)
            continue
        for expected, rule in zip(sources[group["name"]]["rules"], group["rules"], strict=True):
            if notes := expected.get("annotations"):
                notes["runbook_url"] = f"https://wiki.example/{notes['runbook_url']}"
                if "dashboard" in notes:
                    notes["dashboard"] = f"https://grafana.example{notes['dashboard']}"
            assert expected == rule
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump(spec))
    checked = subprocess.run([program("promtool"), "check", "rules", path], capture_output=True, text=True, check=False)
    assert 0 == checked.returncode, checked.stdout + checked.stderr


def _rules(name):
    return yaml.safe_load((ROOT / f"dashboards/prometheus/{name}.rules.yml").read_text())


def _targets(group):
    return sorted(
        (each["record"], each.get("labels", {}).get("priority", "-"), each["expr"]) for each in group["rules"]
    )


def test_dashboards_are_those_of_the_repository():
    objects = render(MOST)
    for path in (ROOT / "dashboards/grafana").glob("*.json"):
        each = objects["ConfigMap", f"shop-evenlane-dashboard-{path.stem}"]
        assert {f"evenlane-{path.name}": path.read_text()} == each["data"]
        assert "1" == each["metadata"]["labels"]["grafana_dashboard"]
        assert len(path.read_bytes()) < 2**20  # of a ConfigMap


def test_metrics_have_the_job_that_alerts_expect():
    objects = render(MOST)
    spec = objects["PodMonitor", "shop-evenlane"]["spec"]
    [endpoint] = spec["podMetricsEndpoints"]
    assert ("http", "/metrics", "10s") == (endpoint["port"], endpoint["path"], endpoint["interval"])
    assert [{"action": "replace", "targetLabel": "job", "replacement": "evenlane"}] == endpoint["relabelings"]
    labels = objects["Deployment", "shop-evenlane"]["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("mode", SCALED)
def test_node_accepts_the_settings_of_its_scaler(mode, tmp_path):
    """The node scales as the chart does, within the same bounds."""
    _, container = node(render(merged(SCALED[mode], {"scaling": {"min": 3, "max": 9}})))
    settings = load({}, _environ(container, tmp_path)).settings
    assert mode == settings.scaling
    if mode != "off":
        assert (3, 9) == (settings.scaling_min, settings.scaling_max)
    if mode == "leader":
        assert "shop-evenlane" == settings.scaling_deployment
    if mode == "keda":
        assert "0.0.0.0:6000" == settings.scaling_listen

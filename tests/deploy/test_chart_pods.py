"""The chart's pods: their variables, secrets, probes, end, restrictions and places."""

import pytest

from evenlane.engine.base.config.settings import load
from tests.deploy.charts import LEAST, MOST, SECRET_OF, environ_of, merged, node, pod_specs, render

pytestmark = pytest.mark.source


@pytest.mark.parametrize(("example", "values"), [("least", LEAST), ("most", MOST)])
def test_node_accepts_its_variables(example, values, tmp_path):
    """Each variable is a setting, with a value that a node takes."""
    _, container = node(render(values))
    settings = load({}, environ_of(container, tmp_path)).settings
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

"""Renders the chart by Helm's own engine."""

from functools import cache

import helm_python as helm
import yaml

from tests.support import ROOT

CHART = ROOT / "deploy/helm/evenlane"
NAME, NAMESPACE = "shop", "prod"

LEAST = {
    "handler": "shop.jobs:handle",
    "image": {"repository": "shop", "tag": "1.2"},
    "nats": {"servers": ["nats://nats-1:4222", "nats://nats-2:4222"]},
    "etcd": {"endpoints": ["etcd-1:2379", "etcd-2:2379"]},
}
SECRET_OF = {
    "nats_password_file": ("nats", "password"),
    "nats_ca": ("nats", "ca"),
    "etcd_password_file": ("etcd", "password"),
    "etcd_ca": ("etcd", "ca"),
    "http_token_file": ("http", "token"),
    "http_tokens_file": ("http", "tokens"),
    "push_ca": ("push", "ca"),
}
"""The values of the secret of a setting that names a file."""


def merged(*parts):
    """Values in which later parts overrule earlier ones, key by key."""
    values = {}
    for part in parts:
        for key, value in part.items():
            known = values.get(key)
            values[key] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return values


_EACH_SECRET = merged(*(
    {server: {value: {"existingSecret": f"{server}-{value}", "key": "the-key"}}}
    for server, value in SECRET_OF.values()
))  # fmt: skip
MOST = merged(
    LEAST,
    _EACH_SECRET,
    {
        "fallback": "shop.jobs:give_up",
        "imagePullSecrets": [{"name": "pull"}],
        "nats": {
            "user": "node", "monitor": ["http://nats-1:8222"], "clientCertificate": {"existingSecret": "nats-tls"},
        },
        "etcd": {"user": "node", "clientCertificate": {"existingSecret": "etcd-tls"}},
        "http": {"certificate": {"existingSecret": "http-tls"}},
        "push": {"secrets": {"existingSecret": "endpoints"}},
        "config": {
            "concurrency": 200, "replicas": 3, "priorities": ["high", "low"], "settle_interval": 0.1,
            "payload_budget": "128MiB", "max_queue_backlog": 2**53, "push_private": True,
        },
        "extraEnv": [{"name": "SHOP_REGION", "value": "eu"}],
        "extraVolumes": [{"name": "jobs", "configMap": {"name": "jobs"}}],
        "extraVolumeMounts": [{"name": "jobs", "mountPath": "/app"}],
        "networkPolicy": {"from": [{"namespaceSelector": {}}], "egress": {"enabled": True, "to": [{"to": []}]}},
        "monitoring": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}, "dashboards": {"enabled": True}},
        "reports": {"enabled": True, "existingClaim": "reports", "image": {"repository": "spark", "tag": "1"}},
        "nodeSelector": {"pool": "jobs"},
        "tolerations": [{"key": "jobs", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "podAnnotations": {"team": "shop"},
        "podLabels": {"team": "shop"},
    },
)  # fmt: skip
_CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
SCALED = {
    mode: merged(LEAST, {"scaling": {"mode": mode, "hpa": {"metrics": [_CPU]}}})
    for mode in ("off", "leader", "keda", "hpa")
}


@cache
def _chart():
    return helm.Chart.load(CHART)


def render(values):
    """Return the objects of these values by kind and name."""
    files = _chart().render(values, name=NAME, namespace=NAMESPACE)
    found = (
        each for text in files.values() for each in yaml.load_all(text, yaml.CSafeLoader) if isinstance(each, dict)
    )
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pod_specs(objects):
    """Return the spec of each pod that these objects make."""
    paths = {"Deployment": ("template",), "CronJob": ("jobTemplate", "spec", "template"), "Pod": ()}
    specs = {}
    for (kind, name), each in objects.items():
        if kind in paths:
            for key in ("spec", *paths[kind], *(["spec"] if paths[kind] else [])):
                each = each[key]  # noqa: PLW2901 - walks down
            specs[name] = each
    return specs


def node(objects):
    """Return the spec of the node's pods, and its only container."""
    spec = pod_specs(objects)["shop-evenlane"]
    [container] = spec["containers"]
    return spec, container


def environ_of(container, folder):
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

"""Objects of the Kubernetes API that tests create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_RBAC = "rbac.authorization.k8s.io"
Object = dict[str, Any]


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def account(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def deployment(name: str, replicas: int) -> Object:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "node", "image": "evenlane"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def role(name: str, verbs: Sequence[str], names: Sequence[str]) -> Object:
    """A role with these verbs on the scale of the Deployments of these names."""
    rule = {
        "apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": list(names), "verbs": list(verbs),
    }  # fmt: skip
    rules = [rule] if verbs else []
    return {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}


def role_binding(namespace: str, name: str) -> Object:
    """The binding of a role to the service account of the same name."""
    return {
        "apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }  # fmt: skip

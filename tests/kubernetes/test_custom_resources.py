"""The chart's objects for KEDA and the Prometheus operator, against types that were generated from their CRDs (P10).

The compiler of TypeScript finds unknown and missing fields and wrong types.
"""

import json
import subprocess

import pytest

from tests.deploy.charts import MOST, SCALED, merged, render
from tests.support import ROOT

pytestmark = pytest.mark.kubernetes

MODULES = ROOT / ".tools/npm/node_modules"
GROUPS = {
    "ScaledObject": "@kubernetes-models/keda/keda.sh/v1alpha1",
    "PodMonitor": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
    "PrometheusRule": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1",
}


def compile_objects(objects, folder):
    """The errors that the compiler finds in the objects."""
    lines = [f'import type {{I{kind}}} from "{group}";' for kind, group in GROUPS.items()]
    lines += [f"export const object{i}: I{each['kind']} = {json.dumps(each)};" for i, each in enumerate(objects)]
    (folder / "objects.ts").write_text("\n".join(lines))
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(MODULES)
    command = [MODULES / ".bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "objects.ts"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ended.stdout.splitlines()


@pytest.fixture(scope="module")
def objects():
    behavior = {"scaleDown": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}}
    rendered = render(merged(MOST, SCALED["keda"], {"scaling": {"keda": {"behavior": behavior}}}))
    found = {kind: each for (kind, _), each in rendered.items() if kind in GROUPS}
    assert set(GROUPS) == set(found)
    return found


def test_objects_have_the_fields_of_their_crds(objects, tmp_path):
    """P10."""
    assert [] == compile_objects(objects.values(), tmp_path)


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("ScaledObject", {"minReplicaCounts": 1}),
        ("ScaledObject", {"minReplicaCount": "1"}),
        ("PodMonitor", {"podMetricEndpoints": []}),
        ("PrometheusRule", {"groups": [{"name": "a", "rules": [{"record": "x"}]}]}),
    ],
)
def test_wrong_fields_are_found(kind, spec, objects, tmp_path):
    """P10: the test above can fail."""
    wrong = merged(objects[kind], {"spec": spec})
    assert compile_objects([wrong], tmp_path)

"""The chart: what it renders, by Helm's own engine, against the schemas of Kubernetes."""

import subprocess
import sys

import helm_python as helm
import pytest

from tests.deploy.charts import CHART, LEAST, MOST, SCALED, render
from tests.support import ROOT

pytestmark = pytest.mark.source
EXAMPLES = {"least": LEAST, "most": MOST, **SCALED}


# Of custom resources; their fields are checked one by one below.
CUSTOM = {"PodMonitor", "PrometheusRule", "ScaledObject"}
OLDEST, NEWEST = "1.25.0", "1.37.0"  # of Kubernetes


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


@pytest.fixture(scope="module")
def kubernetes_validate():
    """Its import takes seconds: only the worker that runs these tests needs them."""
    import kubernetes_validate

    return kubernetes_validate


@pytest.mark.parametrize("version", [OLDEST, "1.30.0", NEWEST])
@pytest.mark.parametrize("example", EXAMPLES)
def test_objects_are_valid_for_kubernetes(kubernetes_validate, example, version):
    """Each object has only fields that this version of Kubernetes knows, and of the right types."""
    objects = render(EXAMPLES[example])
    for (kind, _), each in objects.items():
        if kind not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)
    assert {"Deployment", "NetworkPolicy", "PodDisruptionBudget"} <= {kind for kind, _ in objects}


def test_validation_finds_an_unknown_field(kubernetes_validate):
    """The test above can fail."""
    objects = render(LEAST)
    objects["Deployment", "shop-evenlane"]["spec"]["template"]["spec"]["containers"][0]["port"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="port"):
        kubernetes_validate.validate(objects["Deployment", "shop-evenlane"], "1.30.0", strict=True)

"""Settings of scaling: values, and those that depend on one another (P10)."""

import pytest

from evenlane.engine.base.config.scaling import WaitTarget, parse_target
from evenlane.engine.base.config.settings import load
from evenlane.engine.errors import ConfigError


def refusal(**flags):
    with pytest.raises(ConfigError) as caught:
        load(flags, environ={})
    return str(caught.value)


def test_defaults_are_those_of_the_requirement(folder):
    """P10: 90 % of the CPU, 50 and 2 projects, 2 nodes, every 30 s, 10 minutes of rest."""
    settings = load(environ={}).settings
    assert ("off", "rules", 0.9, 50.0, 2.0) == (
        settings.scaling, settings.scaling_policy, settings.scaling_cpu, settings.scaling_projects_above,
        settings.scaling_projects_below,
    )  # fmt: skip
    assert (2, 30.0, 600.0) == (settings.scaling_min, settings.scaling_interval, settings.scaling_rest)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p99 wait 2s", WaitTarget(99.0, 2.0)),
        ("p99.9  wait 500ms", WaitTarget(99.9, 0.5)),
        ("p50 wait 1m", WaitTarget(50.0, 60.0)),
    ],
)
def test_target_is_a_percentile_and_a_wait(text, expected, folder):
    """P10."""
    assert expected == parse_target(text)
    found = load({"scaling_policy": "need", "scaling_target": text}, environ={}).settings.scaling_target
    assert expected == parse_target(found)


@pytest.mark.parametrize(
    "text", ["2s", "p99", "p100 wait 2s", "p49 wait 2s", "p99 wait 0s", "p99 wait 2d", "p99 wait x"]
)
def test_other_targets_are_refused(text, folder):
    """P10."""
    assert refusal(scaling_policy="need", scaling_target=text) == (
        f"scaling_target (flag --scaling-target): {text!r} is not a target: write p99 wait 2s, with p50 to p99.9999"
        " and 1ms to 1d"
    )


@pytest.mark.parametrize(("given", "expected"), [("90%", 0.9), ("0.9", 0.9), (0.9, 0.9), ("0%", 0.0), ("100%", 1.0)])
def test_cpu_is_a_share(given, expected, folder):
    """P10."""
    assert expected == load({"scaling_cpu": given}, environ={}).settings.scaling_cpu


@pytest.mark.parametrize("given", ["90", "101%", "-1%", "%", "nan", "1e-1%"])
def test_other_shares_are_refused(given, folder):
    """P10."""
    assert refusal(scaling_cpu=given) == (
        f"scaling_cpu (flag --scaling-cpu): {given!r} is not a share from 0% to 100%, such as 90% or 0.9"
    )


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            {"scaling_min": "9", "scaling_max": "4"},
            "scaling_min (flag --scaling-min): 9 is above scaling_max, which is 4",
        ),
        (
            {"scaling_policy": "need"},
            "scaling_policy (flag --scaling-policy): need has no target: set scaling_target, such as 'p99 wait 2s'",
        ),
        (
            {"scaling_cpu": "0%", "scaling_projects_above": "0", "scaling_projects_below": "0"},
            (
                "scaling_policy (default): rules has no metric: set scaling_cpu, scaling_projects_above or"
                " scaling_projects_below"
            ),
        ),
        (
            {"scaling_target": "p99 wait 2s"},
            (
                "scaling_target (flag --scaling-target): the policy rules has no target: leave it out, or set"
                " scaling_policy to need"
            ),
        ),
        (
            {"scaling_projects_below": "60"},
            (
                "scaling_projects_below (flag --scaling-projects-below): 60 is not below scaling_projects_above, which"
                " is 50"
            ),
        ),
        (
            {"scaling": "leader"},
            "scaling (flag --scaling): leader needs the name of the nodes' Deployment: set scaling_deployment",
        ),
        (
            {"scaling": "hpa"},
            (
                "scaling (flag --scaling): hpa needs http_port, as the autoscaler reads the number of nodes from the"
                " metrics"
            ),
        ),
        (
            {"scaling_deployment": "Nodes_1"},
            (
                "scaling_deployment (flag --scaling-deployment): 'Nodes_1' is not a name in Kubernetes: write"
                " lower-case letters, digits, '-' and '.'"
            ),
        ),
        (
            {"scaling_api": "http://10.0.0.1"},
            "scaling_api (flag --scaling-api): 'http://10.0.0.1' is not an address of an API: write https://HOST:PORT",
        ),
        (
            {"scaling_listen": "6000"},
            (
                "scaling_listen (flag --scaling-listen): '6000' is not an address to listen on: write HOST:PORT, such"
                " as 0.0.0.0:6000"
            ),
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(flags, sentence, folder):
    """P10: a scaler with neither target nor metric, min above max, and others."""
    assert sentence == refusal(**flags)

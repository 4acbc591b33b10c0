"""The chart refuses the settings that a node refuses."""

import contextlib
import json

import helm_python as helm
import pytest

from evenlane import EvenlaneError
from evenlane.engine.base.config.scaling import parse_target
from evenlane.engine.base.config.settings import Settings, load
from tests.deploy.charts import CHART, LEAST, merged, node, render

pytestmark = pytest.mark.source

FILES = {"scaling_token_file", "scaling_ca"}  # of the pod
SCHEMA = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
CONFIG = {key: each for key, each in SCHEMA.items() if each is not True and key not in FILES}
"""Settings without a value of their own."""

NUMBERS = (-1, 0, 0.0005, 0.5, 1, 2, 3, 7, 59, 61, 4_000, 70_000, 200_000, 2**24, 2**30, 2**41, 10**10, 2**54)
DURATIONS = (
    "0", "0s", "1ms", "5s", "10 m", "1.5s", "1500ms", "3000ms", "2h", "40d", "36501d", "-5s", "2w", "1e3", "soon",
)  # fmt: skip
SIZES = ("1KiB", "1MiB", "5MB", "64 MiB", "59MiB", "61MiB", "2000GiB", "64 XB", "1.5GiB")
TEXTS = (
    "", " ", "a b", "my.env", "a,b", "a, b", "a,", "x" * 65, "x" * 129, "90%", "0.9", "101%", "1.5%", "_INBOX",
    "_INBOX.a", "_INBOX.a b", "nats", "https://k8s:443", "http://k8s", "https://k8s/path", "p99 wait 2s", "many",
    "file", "hashed", "need", "rules", "json", "FILE",
)  # fmt: skip
OTHERS = (True, [], ["a"], ["a", "b"], ["a", "a"], ["a.b"], [f"p{each}" for each in range(9)], {"a": 1})


def _load(given):
    """Return what a node loads of the variables that the chart makes of these values; None if it doesn't start."""
    _, container = node(render(merged(LEAST, given)))
    environ = {each["name"]: each.get("value", "shop-evenlane-x7k2p") for each in container["env"]}
    try:
        return load({}, environ).settings
    except EvenlaneError:
        return None


@pytest.mark.parametrize("setting", CONFIG)
def test_node_starts_with_each_setting_that_is_rendered(setting):
    """A wrong setting stops the chart, never the pods."""
    import jsonschema  # takes seconds

    schema = jsonschema.Draft7Validator(CONFIG[setting])
    for value in (*NUMBERS, *DURATIONS, *SIZES, *TEXTS, *OTHERS):
        if schema.is_valid(value):
            with contextlib.suppress(helm.HelmError):
                assert _load({"config": {setting: value}}), value


@pytest.mark.parametrize("name", TEXTS)
def test_environment_that_is_rendered_is_one_of_a_node(name):
    with contextlib.suppress(helm.HelmError):
        assert _load({"environment": name})


@pytest.mark.parametrize(
    "target",
    [
        "p99 wait 2s", "p50  wait 10", "p99.9999 wait 1.5m", "p99 wait 1d", "p49 wait 2s", "p99 wait", "p99 wait 2w",
        "p99 wait -1s", "p100 wait 1s", "p99 wait 2d", "p99 wait 0s", "p99 wait 500ms", "p99 wait 0.1ms",
    ],
)  # fmt: skip
def test_target_is_one_of_a_node(target):
    given = {"config": {"scaling_policy": "need", "scaling_target": target}}
    try:
        parse_target(target)
    except ValueError:
        with pytest.raises(helm.HelmError, match="is not a target"):
            render(merged(LEAST, given))
    else:
        assert _load(given)


def test_chart_takes_each_default():
    """It refuses nothing that a node has by itself."""
    defaults = {key: getattr(Settings(), key) for key in CONFIG}
    given = {key: list(each) if isinstance(each, tuple) else each for key, each in defaults.items() if each is not None}
    assert len(given) > 20
    assert given.items() <= _load({"config": given}).shown().items()

"""Files that start Prometheus and Grafana next to a node are consistent (docs/how-to/monitor.md); no container runs."""

import re
from pathlib import PurePosixPath

import yaml

from tests.dashboards.files import GRAFANA, ROOT, RULES, promtool

HERE = ROOT / "deploy/observability"


def _read(name):
    return yaml.safe_load((HERE / name).read_text(encoding="utf-8"))


def _mounted(service):
    """Our folders by their path in the container."""
    volumes = [volume.split(":") for volume in _read("compose.yaml")["services"][service]["volumes"]]
    return {inside: (HERE / outside).resolve() for outside, inside, *_ in volumes if outside.startswith(".")}


def test_prometheus_accepts_its_configuration_with_all_rules():
    reported = promtool("check", "config", HERE / "prometheus.yml")
    assert f"{len(RULES)} rule files found" in reported


def test_rule_files_are_mounted_where_the_configuration_names_them():
    """The configuration has paths relative to itself."""
    mounted = _mounted("prometheus")
    config = next(each.partition("=")[2] for each in _read("compose.yaml")["services"]["prometheus"]["command"]
                  if each.startswith("--config.file="))  # fmt: skip
    folder = PurePosixPath(config).parent
    assert HERE == mounted[str(folder)]
    (pattern,) = _read("prometheus.yml")["rule_files"]
    up = pattern.count("../")
    inside = folder.parents[up - 1] / PurePosixPath(pattern.replace("../", "")).parent
    assert RULES[0].parent == mounted[str(inside)]


def test_job_has_the_name_in_the_alerts():
    (job,) = _read("prometheus.yml")["scrape_configs"]
    rules = "".join(path.read_text(encoding="utf-8") for path in RULES)
    assert {job["job_name"]} == set(re.findall(r'job="(\w+)"', rules))


def test_target_is_the_default_address_of_a_node():
    """With network_mode: host, 127.0.0.1 is the same in each container."""
    (targets,) = _read("nodes.yml")
    assert ["127.0.0.1:8080"] == targets["targets"]
    services = _read("compose.yaml")["services"]
    assert {"host"} == {service["network_mode"] for service in services.values()}


def test_services_listen_on_loopback_only():
    services = _read("compose.yaml")["services"]
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert "127.0.0.1" == services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"]


def test_grafana_finds_prometheus_and_the_dashboards():
    (source,) = _read("grafana/datasources/prometheus.yml")["datasources"]
    assert ("prometheus", "http://127.0.0.1:9090", True) == (source["type"], source["url"], source["isDefault"])
    assert _read("prometheus.yml")["global"]["scrape_interval"] == source["jsonData"]["timeInterval"]
    mounted = _mounted("grafana")
    (provider,) = _read("grafana/dashboards/evenlane.yml")["providers"]
    assert GRAFANA[0].parent == mounted[provider["options"]["path"]]
    for each in ("datasources", "dashboards"):
        assert HERE / "grafana" / each == mounted[f"/etc/grafana/provisioning/{each}"]
    home = PurePosixPath(
        _read("compose.yaml")["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    )
    assert home.name in {path.name for path in GRAFANA}
    assert provider["options"]["path"] == str(home.parent)


def test_images_have_versions_and_no_registry():
    for service in _read("compose.yaml")["services"].values():
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"])

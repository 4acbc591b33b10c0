import shutil

import helm_python as helm
import pytest

from tests.deploy.charts import CHART, NAME, NAMESPACE


@pytest.fixture(scope="session")
def chart(tmp_path_factory):
    """The chart, for a release of Kubernetes that is older than those it asks for."""
    folder = tmp_path_factory.mktemp("chart") / CHART.name
    shutil.copytree(CHART, folder)
    about = folder / "Chart.yaml"
    about.write_text("".join(line for line in about.open() if not line.startswith("kubeVersion:")))
    return folder


class Release:
    """The chart's release in an API server."""

    def __init__(self, config, chart):
        self._config, self._chart = config, chart

    def install(self, values):
        self._config.install(self._chart, NAME, values, create_namespace=True)

    def upgrade(self, values):
        self._config.upgrade(self._chart, NAME, values)

    def uninstall(self):
        self._config.uninstall(NAME)


@pytest.fixture
def release(api_server, chart):
    access = {"kube_apiserver": api_server.url, "kube_token": api_server.admin_token, "kube_ca_file": api_server.ca}
    with helm.Config(namespace=NAMESPACE, **access) as config:
        yield Release(config, chart)
        if config.list():
            config.uninstall(NAME)

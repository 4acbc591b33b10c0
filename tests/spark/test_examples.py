"""Examples for Airflow and the Spark operator name existing jobs and options."""

import argparse
import ast
import importlib
from pathlib import PurePosixPath

import yaml

from tests.support import ROOT

_EXAMPLES = ROOT / "examples"


def _accepts(job, arguments):
    """Whether the job's own parser accepts the arguments; the job doesn't start."""
    module = importlib.import_module(f"evenlane.spark.jobs.{job}")

    class Parsed(Exception):
        pass

    def parse(self, given):
        parsed, rest = self.parse_known_args(given)
        assert [] == rest
        raise Parsed(parsed)

    patched, argparse.ArgumentParser.parse_args = argparse.ArgumentParser.parse_args, parse
    try:
        module.main(arguments)
    except Parsed:
        return True
    finally:
        argparse.ArgumentParser.parse_args = patched
    return False


def test_spark_operator_example_has_existing_jobs_and_options():
    documents = list(yaml.safe_load_all((_EXAMPLES / "spark-operator" / "report.yaml").read_text()))
    assert ["ScheduledSparkApplication", "SparkApplication"] == [each["kind"] for each in documents]
    for each in documents:
        spec = each["spec"].get("template", each["spec"])
        assert _accepts(PurePosixPath(spec["mainApplicationFile"]).stem, spec["arguments"])
        for role in ("driver", "executor"):
            assert {"EVENLANE_NATS", "EVENLANE_ENV"} == {variable["name"] for variable in spec[role]["env"]}


def test_airflow_example_compiles_with_existing_jobs_and_options():
    """Airflow itself isn't installed here."""
    file = _EXAMPLES / "airflow" / "evenlane_report.py"
    tree = ast.parse(file.read_text())
    compile(tree, file, "exec")
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "SparkSubmitOperator"
    ]
    operators = [{keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords} for call in calls]
    for each in operators:
        job = PurePosixPath(each["application"].strip("f'\"")).stem
        assert _accepts(job, [str(value) for value in eval(each["application_args"], {"ARCHIVE": "a", "REPORTS": "r"})])
    assert 2 == len(operators)

"""A Spark master that doesn't answer is named before Java starts."""

import socket

import pytest

from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.spark import session as sessions
from evenlane.spark.master import NoMaster, check_master


def test_dead_master_is_named():
    """X7: with the reason."""
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(NoMaster) as found:
        check_master(master)
    assert f"no Spark master answers at {master}: Connection refused" == str(found.value)


def test_one_of_several_masters_is_enough():
    with socket.create_server(("127.0.0.1", 0)) as server:
        live = f"127.0.0.1:{server.getsockname()[1]}"
        check_master(f"spark://127.0.0.1:{free_port()},{live}")
        check_master(f"spark://{live}")


def test_all_dead_masters_are_one_sentence():
    dead = f"spark://127.0.0.1:{free_port()},nowhere.invalid:7077"
    with pytest.raises(NoMaster, match=f"^no Spark master answers at {dead}: ") as found:
        check_master(dead)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("master", ["spark://", "spark://host", "spark://host:port", "spark://a:1,b", "spark://a:1/x"])
def test_malformed_master_is_refused(master):
    with pytest.raises(ConfigError, match="is not like spark://HOST:7077"):
        check_master(master)


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://127.0.0.1:1"])
def test_other_masters_are_left_to_spark(master):
    check_master(master)


def test_session_checks_its_master_before_java_starts(monkeypatch):
    monkeypatch.setattr(sessions, "java_home", lambda _: pytest.fail("Java was looked for"))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(NoMaster), sessions.session("test", master=f"spark://127.0.0.1:{free_port()}"):
        pass

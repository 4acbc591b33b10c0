"""`evenlane report`: what is wrong is told before Spark starts, and what etcd knows goes into the report (issue 8)."""

import pytest

from evenlane.spark import command
from evenlane.spark.jobs import report as job

pytestmark = pytest.mark.real


@pytest.fixture
def made(monkeypatch):
    """What would be made."""
    wanted = []

    def make(each, _master):
        wanted.append(each)
        return job.Written(["report.json"], {"tenants": [], "quotas": [], "from": None, "to": None})

    monkeypatch.setattr(job, "ask", lambda wanted: None)
    monkeypatch.setattr(command, "_made", make)
    return wanted


WRONG = r"""
report --out there --window 2h
report --out there --format html,pdf
report --out there --since 1h --until 2h
report --out there --targets hihg=3s
report --out there --targets high
report --out there --targets high=3s,high=4s
"""


def test_what_is_misspelt_is_told_before_spark_starts(on_etcd, made, transcript):
    """Issue 8.4: one sentence, and wrong use."""
    assert 0 == on_etcd("topics", "set", "acme", "--qps", "100")[0]
    transcript.fail(WRONG)
    transcript.check()
    assert [] == made


def test_whole_topics_are_what_quotas_are_put_into(on_etcd, made):
    """Issue 8.4: `topics apply` replaces what it finds."""
    assert 0 == on_etcd("topics", "set", "acme", "--qps", "100", "--weight", "3")[0]
    code, out, err = on_etcd("report", "--out", "there", "--targets", "high=3s,empty=1h")
    assert (0, "there/report.json\n0 tenants, 0 late, 0 quotas to change\n", "") == (code, out, err)
    [wanted] = made
    assert {"acme": {"qps": 100, "weight": 3}} == wanted.topics
    assert (3.0, 3600.0) == (wanted.targets.oldest_s["high"], wanted.targets.empty_s)


def test_without_etcd_it_is_a_report_without_quotas(evenlane, made):
    """Issue 8.4: and no priority is known."""
    code, _, err = evenlane("report", "--etcd", "127.0.0.1:9", "--out", "there", "--targets", "urgent=3s")
    assert 0 == code
    assert err.startswith("quotas.json is left out, as it holds whole topics: etcd at 127.0.0.1:9 does not answer")
    assert [None] == [each.topics for each in made]

"""`evenlane report`: errors are reported before Spark starts, and topics from etcd go into the report."""

import pytest

from evenlane.spark import command
from evenlane.spark.jobs import report as job

pytestmark = pytest.mark.real


@pytest.fixture
def requests(monkeypatch):
    """The reports that the command would make."""
    requests = []

    def make(request, _master):
        requests.append(request)
        return job.ReportFiles(["report.json"], {"tenants": [], "quotas": [], "from": None, "to": None})

    monkeypatch.setattr(job, "ask", lambda _request: None)
    monkeypatch.setattr(command, "_make_report", make)
    return requests


WRONG = r"""
report --out there --window 2h
report --out there --format html,pdf
report --out there --since 1h --until 2h
report --out there --targets hihg=3s
report --out there --targets high
report --out there --targets high=3s,high=4s
"""


def test_wrong_option_is_one_sentence_before_spark_starts(on_etcd, requests, transcript):
    assert 0 == on_etcd("topics", "set", "acme", "--qps", "100")[0]
    transcript.fail(WRONG)
    transcript.check()
    assert [] == requests


def test_report_gets_complete_topics_from_etcd(on_etcd, requests):
    """`topics apply` replaces complete topics."""
    assert 0 == on_etcd("topics", "set", "acme", "--qps", "100", "--weight", "3")[0]
    code, out, err = on_etcd("report", "--out", "there", "--targets", "high=3s,empty=1h")
    assert (0, "there/report.json\n0 tenants, 0 late, 0 quotas to change\n", "") == (code, out, err)
    [request] = requests
    assert {"acme": {"qps": 100, "weight": 3}} == request.topics
    assert (3.0, 3600.0) == (request.targets.oldest_s["high"], request.targets.empty_s)


def test_report_of_a_subscription_reads_its_records(on_etcd, requests):
    """K10: by default those of the one without a name."""
    assert 0 == on_etcd("report", "--out", "there", "--subscription", "audit")[0]
    assert 0 == on_etcd("report", "--out", "there")[0]
    own, unnamed = requests
    assert ("audit", "audit") == (own.subscription, own.source["subscription"])
    assert unnamed.subscription is None
    assert "subscription" not in unnamed.source
    code, _, error = on_etcd("report", "--out", "there", "--subscription", "a_b")
    assert 2 == code
    assert "subscription 'a_b' is not valid" in error


def test_report_without_etcd_has_no_quotas(evenlane, requests):
    """Priorities are unknown as well, so their names aren't checked."""
    code, _, err = evenlane("report", "--etcd", "127.0.0.1:9", "--out", "there", "--targets", "urgent=3s")
    assert 0 == code
    assert err.startswith("quotas.json is left out, as it holds whole topics: etcd at 127.0.0.1:9 does not answer")
    assert [None] == [each.topics for each in requests]

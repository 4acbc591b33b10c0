"""The page that Prometheus reads: it parses, is bounded, and its counters never fall (fault 21, X8)."""

import math

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parsed

from engine.clock import now_ns
from engine.metrics import names
from engine.metrics.exposition import page, written
from engine.metrics.families import Snapshot, snapshot
from engine.metrics.sampling import Sampling
from engine.metrics.tenants import Tenants
from tests.engine.metrics.rounds import NOW, SECOND, go_round, look
from tests.engine.metrics.rounds import tenants as few
from tests.engine.node.world import FACTS, World, topic
from tests.wait import until

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
REFUSALS = {"wish": 3, "accepted": 1}


def told(tenants) -> Snapshot:
    return snapshot("online", tenants, refused=2, refusals=REFUSALS)


def read(text, parse=parsed):
    """Value by (name, labels)."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def value(samples, name, **labels):
    return samples[name, tuple(sorted({"env": "online", **labels}.items()))]


def by_hand():
    known = few(most=1)
    for at in (0, 2):
        go_round(
            known, at,
            look(backlog=6, reason="quota", head_at=NOW - 5 * SECOND, flow=(7 + at, at, 1)),
            look(band=2, backlog=3, reason="higher_priority"), look("bolt", backlog=1, reason="paused"),
            in_flight={("acme", 1): 4},
        )  # fmt: skip
    return known


def test_each_metric_by_hand():
    """X8, X7: every name that the surface has, with its labels."""
    samples = read(written(told(by_hand()), "").body.decode())
    acme = {"project": "acme", "priority": "mid"}
    assert 2.0 == value(samples, names.WAITING_SECONDS, **acme, reason="quota")
    assert 12.0 == value(samples, names.WAITING_MESSAGE_SECONDS, **acme, reason="quota")
    assert 1.0 == value(samples, names.WAITING_QUEUES, **acme, reason="quota")
    assert 2.0 == value(samples, names.WAITING_SECONDS, project="other", priority="mid", reason="paused")
    assert (6.0, 4.0, 5.0) == tuple(
        value(samples, name, **acme) for name in (names.BACKLOG, names.IN_FLIGHT, names.OLDEST)
    )
    assert (9.0, 2.0, 1.0) == tuple(
        value(samples, name, **acme) for name in (names.ARRIVED, names.HANDLED, names.FAILED)
    )
    assert (1.0, 1.0) == tuple(value(samples, name, **acme) for name in (names.ARRIVAL_RATE, names.DRAIN_RATE))
    assert 6 / 99 == pytest.approx(value(samples, names.TIME_TO_EMPTY, **acme))  # the quota of 100 is used up
    assert (1.0, 2.0, 2.0) == tuple(
        value(samples, name) for name in (names.PROJECTS_LEFT_OUT, names.ROUND, names.TOPICS_REFUSED)
    )
    assert (3.0, 1.0) == tuple(value(samples, names.TOPIC_REFUSALS, where=where) for where in ("wish", "accepted"))
    assert {name for key, name in vars(names).items() if key.isupper() and key != "OTHER"} == {
        name for name, _ in samples
    }


def test_openmetrics_if_asked():
    """Both forms say the same."""
    plain, open_ = written(told(by_hand()), "text/plain"), written(told(by_hand()), OPENMETRICS)
    assert open_.content_type.startswith("application/openmetrics-text")
    assert plain.content_type.startswith("text/plain")
    assert open_.body.endswith(b"# EOF\n")
    parse = openmetrics.text_string_to_metric_families
    assert read(plain.body.decode()) == read(open_.body.decode(), parse)


def test_never_is_infinity_and_what_isnt_known_is_left_out():
    known = few()
    go_round(known, 0, look(backlog=6), topics=topic(state="paused"))
    samples = read(written(told(known), "").body.decode())
    assert not any(
        name in {names.OLDEST, names.TIME_TO_EMPTY} and dict(labels)["priority"] == "mid" for name, labels in samples
    )
    go_round(known, 2, look(backlog=6), topics=topic(state="paused"))
    samples = read(written(told(known), "").body.decode())
    assert math.inf == value(samples, names.TIME_TO_EMPTY, project="acme", priority="mid")


def test_a_node_that_has_not_joined_has_a_page_too():
    samples = read(written(told(None), OPENMETRICS).body.decode(), openmetrics.text_string_to_metric_families)
    assert {names.PROJECTS_LEFT_OUT, names.ROUND, names.TOPICS_REFUSED, names.TOPIC_REFUSALS} == {
        name for name, _ in samples
    }


def test_what_was_seen_stands_while_it_is_written():
    """A round may end meanwhile."""
    known = by_hand()
    seen = told(known)
    before = written(seen, "").body
    go_round(known, 9, look(backlog=1, reason="paused", flow=(99, 9, 9)))
    assert before == written(seen, "").body


async def test_five_hundred_tenants_on_a_node():
    """Fault 21, X8: 20 have a label; nothing ever falls, whatever comes, is handled, or goes with a partition."""
    projects = [f"t{number}" for number in range(500)]
    async with World(**dict.fromkeys(projects, topic())) as world:
        for number, project in enumerate(projects):
            await world.put_many(1 + (number < 30) * 4, project=project, priority=FACTS.priorities[number % 3])
        node = await world.node()
        await until(lambda: node.queues.projects == 500)
        known, before = Tenants(FACTS.priorities, 20, FACTS.max_group_qps), {}
        looking = Sampling(node, known)
        for step in range(4):
            await looking.round(now_ns())
            samples = read(
                (await page(told(known), OPENMETRICS)).body.decode(), openmetrics.text_string_to_metric_families
            )
            labels = {dict(labels).get("project") for _, labels in samples} - {None}
            assert len(labels) <= 21
            assert "other" in labels
            assert step == 3 or 480 == value(samples, names.PROJECTS_LEFT_OUT)
            assert len(samples) <= 21 * 3 * 9 + len(known.waits.seconds) * 3 + 6
            for key in before.keys() & samples.keys():
                assert not key[0].endswith("_total") or samples[key] >= before[key]
            before = samples
            if step == 0:
                await until(lambda: len(world.handled) == 620)
            if step == 2:
                node.holdings.stop_partition(1)
        assert 620 == sum(number for (name, _), number in before.items() if name == names.HANDLED)

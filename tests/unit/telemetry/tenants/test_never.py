"""`never` in figures of a node: only of a backlog that grew all the time, or of a stopped topic (X7)."""

import math

from tests.support.tenant_rounds import NOW, SECOND, go_round, look, tenants, topic

OLD = NOW - 40 * SECOND


def rounds(*backlogs, arrived=10, handled=10, head_at=NOW - SECOND, **fields):
    """One round per second; in each, messages arrive and are handled. Returns the last backlog's forecast."""
    known = tenants()
    for at, backlog in enumerate(backlogs):
        flow = (arrived * at, handled * at)
        go_round(known, at, look(backlog=backlog, reason="handlers_busy", flow=flow, head_at=head_at), **fields)
    return known.table["acme", 1].empty_in, known.paces.grows("acme")


def test_balanced_backlog_has_no_forecast():
    assert (None, False) == rounds(*[5] * 40)


def test_growing_backlog_is_never_gone():
    assert (math.inf, True) == rounds(*range(1, 41), arrived=11)
    assert (None, False) == rounds(*range(1, 21), arrived=11)  # not yet


def test_shrinking_backlog_has_its_time():
    seconds, grows = rounds(*range(100, 60, -1), arrived=9)
    assert (61, False) == (round(seconds), grows)


def test_backlog_that_nothing_leaves_is_never_gone():
    assert (math.inf, False) == rounds(*[5] * 40, arrived=0, handled=0, head_at=OLD)
    assert (None, False) == rounds(*[5] * 40, arrived=0, handled=0)


def test_stopped_topic_is_never_empty():
    assert (math.inf, False) == rounds(5, 5, 5, topics=topic(state="paused"))


def test_takeover_begins_anew():
    """The backlog of a partition that was taken over isn't growth."""
    known = tenants()
    for at in range(60):
        if at == 30:
            known.measure_again()
        go_round(known, at, look(backlog=at + 1, reason="handlers_busy", flow=(11 * at, 10 * at), head_at=OLD))
        if at in (29, 45):
            assert not known.paces.grows("acme")
    go_round(known, 61, look(backlog=62, reason="handlers_busy", flow=(11 * 61, 610), head_at=OLD))
    assert known.paces.grows("acme")

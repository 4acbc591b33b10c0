"""Rates over a minute or more, on which the quota of `evenlane why --within` rests (X7)."""

from evenlane.engine.telemetry.tenants.flows import GrowthRates, TenantFlow

SECOND = 1_000_000_000


def measured(seconds, *, every=1):
    """Growth rates after `seconds` seconds with 10 arrivals each, and 10 more in the last five."""
    paces = GrowthRates()
    for now in range(0, seconds + 1, every):
        arrived = 10 * now + 10 * max(0, now - seconds + 5)
        short = paces.measure(now * SECOND, TenantFlow(arrived=arrived), every * SECOND)
    return paces, short


def test_long_rates_cover_a_minute_to_one_and_a_half():
    for every in (1, 3, 20):
        paces, short = measured(300, every=every)
        long = paces.measure_long(300 * SECOND)
        assert 60 <= long.seconds <= 90
        assert 10 < long.arriving < short.arriving or every == 20


def test_long_rates_cover_what_there_is():
    paces, _ = measured(20)
    assert 20 == paces.measure_long(20 * SECOND).seconds
    assert GrowthRates().measure_long(SECOND) is None
    paces, _ = measured(3)
    assert paces.measure_long(3 * SECOND) is None, "too short for this"


def test_rest_counts():
    """A place at rest isn't measured; nothing has grown there meanwhile."""
    paces, _ = measured(100)
    at_rest = paces.measure_long(140 * SECOND)
    assert 60 <= at_rest.seconds <= 90
    assert at_rest.arriving < 10
    paces.note_rest(200 * SECOND)
    paces.measure(201 * SECOND, TenantFlow(arrived=1_050), SECOND)
    later = paces.measure_long(201 * SECOND)
    assert (0.0, True) == (later.arriving, 60 <= later.seconds <= 90)

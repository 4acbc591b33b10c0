"""Which handler takes a message: by project, and by kind."""

from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.routes import Route, RouteTable

PROJECTS = ["".join(letters) for length in range(1, 8) for letters in product("ab", repeat=length)]
patterns = st.text("ab*", min_size=1, max_size=4).filter(lambda text: "**" not in text)


class Given:
    """A message, as far as a table looks at it."""

    def __init__(self, **headers):
        self.raw_headers = h.encode(headers)


def handler(name="handle", **options):
    async def handle(message):
        pass

    handle.__qualname__ = name
    return Handler(handle, True, None, label=f"shop:{name}", **options)


def batch_handler(name="many"):
    one = handler(name)
    return Handler(one.call, True, 10, label=one.label)


def table(*routes):
    return RouteTable([Route(*route) for route in routes])


def chosen(routes, project, **headers):
    """The name of the handler that takes a message; None if it waits."""
    handling = routes.find(project)
    taken = handling.handlers.of(Given(**headers)) if handling is not None else None
    return None if taken is None else taken.name.removeprefix("shop:")


def test_exact_name_goes_before_the_longest_literal_prefix():
    routes = table(
        ("*", handler("all")), ("orders-*", handler("orders")), ("orders-eu-*", handler("europe")),
        ("orders-eu-1", handler("one")),
    )  # fmt: skip
    assert ["all", "orders", "europe", "one"] == [
        chosen(routes, name) for name in ("shop", "orders-us", "orders-eu-7", "orders-eu-1")
    ]


def test_project_without_a_handler_has_none():
    assert table(("orders-*", handler())).find("shop") is None


def test_kind_goes_before_a_handler_that_names_none():
    routes = table(("*", handler("refund"), "refund"), ("orders-*", handler("bill")))
    assert "refund" == chosen(routes, "orders-1", kind="refund")
    assert "bill" == chosen(routes, "orders-1", kind="other")
    assert "bill" == chosen(routes, "orders-1")
    assert "refund" == chosen(routes, "shop", kind="refund")
    assert None is chosen(routes, "shop")


def test_of_two_handlers_of_a_kind_the_closest_takes_it():
    routes = table(("*", handler("any"), "refund"), ("orders-*", handler("orders"), "refund"))
    assert ["orders", "any"] == [chosen(routes, name, kind="refund") for name in ("orders-1", "shop")]


@given(st.lists(patterns, min_size=1, max_size=4, unique=True))
def test_routes_against_the_rule(given_patterns):
    """The closest of all patterns that match; and a table is refused exactly if two patterns are equally close to any
    project.
    """

    def closeness(pattern):
        return 100 if "*" not in pattern else len(pattern.partition("*")[0])

    matching = {name: [each for each in given_patterns if fnmatchcase(name, each)] for name in PROJECTS}
    clashes = {name for name, found in matching.items() if len({closeness(each) for each in found}) < len(found)}
    every = [(pattern, handler(pattern)) for pattern in given_patterns]
    if clashes:
        with pytest.raises(ConfigError, match="equally close"):
            table(*every)
        return
    routes = table(*every)
    for name, found in matching.items():
        assert chosen(routes, name) == max(found, key=closeness, default=None)


def test_two_handlers_for_one_pattern_are_named():
    with pytest.raises(ConfigError, match=r"one \('orders-\*'\) and two \('orders-\*'\) are equally close"):
        table(("orders-*", handler("one")), ("orders-*", handler("two")))


def test_patterns_that_no_project_matches_both_of_are_no_conflict():
    assert "eu" == chosen(table(("orders-*-eu", handler("eu")), ("orders-*-us", handler("us"))), "orders-1-eu")


@pytest.mark.parametrize("pattern", ["", "orders.*", "-orders", "a b", "a" * 65, "orders/*", "?", "*" * 5_000])
def test_pattern_that_no_project_can_match(pattern):
    with pytest.raises(ConfigError, match="no project can match the pattern"):
        table((pattern, handler()))


def test_pattern_with_many_stars_takes_no_time():
    """A regular expression would try the places of all the stars."""
    assert chosen(table(("*a" * 20 + "b", handler())), "a" * 64) is None
    with pytest.raises(ConfigError, match="equally close"):
        table(("*a" * 60, handler("one")), ("*b*a" * 20, handler("two")))


def test_fingerprint_tells_kind_headers_and_waits_apart():
    by_type = RouteTable([Route("a", handler("one"), "x")], "type")
    assert "kinds by type; a kind=x -> shop:one" == by_type.fingerprint
    waits = [replace(batch_handler(), batch_wait=wait) for wait in (0.0, 1.5)]
    assert 2 == len({table(("a", each)).fingerprint for each in waits})


def test_batches_and_kinds_of_one_queue_are_refused():
    with pytest.raises(ConfigError, match="many takes batches and names the kind 'refund'"):
        table(("shop", batch_handler(), "refund"))
    with pytest.raises(ConfigError, match=r"share projects, and many takes batches"):
        table(("shop", batch_handler()), ("*", handler("refund"), "refund"))


def test_plain_handler_is_called_directly():
    """Routing costs nothing for a handler that is simply awaited: the queue's rules have the function itself."""
    one = handler()
    assert one.call is table(("shop", one)).find("shop").call


def test_fingerprint_differs_with_the_routes_and_is_bounded():
    first = table(("a-*", handler("one")), ("b", handler("two"), "x"))
    assert "a-* -> shop:one; b kind=x -> shop:two" == first.fingerprint
    assert first.fingerprint == table(("b", handler("two"), "x"), ("a-*", handler("one"))).fingerprint
    many = [table(*((f"p{n}", handler(name)) for n in range(200))).fingerprint for name in ("one", "two", "one")]
    assert many[0] == many[2] != many[1]
    assert len(many[0]) < 600

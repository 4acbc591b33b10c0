"""The rules for each field of a topic. The fields are documented in `evenlane.quota.topics.topic.Topic`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from evenlane.quota.rates.backoff import Backoff
from evenlane.quota.topics import push
from evenlane.quota.topics.strict_json import TopicError, format_value
from evenlane.quota.topics.subscription_quota import SubscriptionQuota

Rule = Callable[[str, object], Any]  # (field, value) -> the value in its own type; raises TopicError

MOST_GROUPS = 20_000  # groups of the largest topic, 1,000,000 QPS, at 50 QPS per group
MOST_QPS = 1_000_000
STATES = ("active", "paused", "draining")
MOST_SUBSCRIPTIONS = 16
"""The most named subscriptions of one environment."""
_YEARS_10 = 315_360_000  # s
_SUBSCRIPTION = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")


def number(low: float, high: float) -> Rule:
    def check(field: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise TopicError(field, f"must be a number from {low:,} to {high:,}, not {format_value(value)}")
        return float(value)

    return check


def whole(low: int, high: int) -> Rule:
    def check(field: str, value: object) -> int:
        wrong = isinstance(value, bool) or not isinstance(value, (int, float))
        if wrong or not low <= value <= high or value != int(value):  # type: ignore[operator, call-overload]
            raise TopicError(field, f"must be a whole number from {low:,} to {high:,}, not {format_value(value)}")
        return int(value)  # type: ignore[call-overload, no-any-return]

    return check


def optional(rule: Rule) -> Rule:
    return lambda field, value: None if value is None else rule(field, value)


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TopicError(field, f"must be true or false, not {format_value(value)}")
    return value


def state(field: str, value: object) -> str:
    if not isinstance(value, str) or value not in STATES:
        raise TopicError(field, f"must be one of {', '.join(STATES)}, not {format_value(value)}")
    return value


def backoff(field: str, value: object) -> Backoff:
    """Parts that aren't given have their defaults."""
    named = {name: BACKOFF[name](f"{field}.{name}", part) for name, part in parts(field, value, BACKOFF)}
    made = replace(Backoff(), **named)
    if made.cap < made.base:
        raise TopicError(f"{field}.cap", f"must be at least {field}.base, {made.base:g}, not {made.cap:g}")
    return made


def parts(field: str, value: object, known: Mapping[str, Rule]) -> list[tuple[str, object]]:
    if isinstance(value, Backoff):
        value = asdict(value)
    if not isinstance(value, Mapping):
        raise TopicError(field, f"must be an object with {', '.join(known)}, not {format_value(value)}")
    for name in value:
        if name not in known:
            raise TopicError(f"{field}.{name}", f"is unknown: the fields are {', '.join(known)}")
    return list(value.items())


def push_settings(field: str, value: object) -> dict[str, Any]:
    """A plain dict with all settings, always in the same order."""
    named = {name: PUSH[name](f"{field}.{name}", part) for name, part in parts(field, value, PUSH)}
    if "url" not in named:
        raise TopicError(f"{field}.url", "is missing: it says where to POST messages to")
    made = {**push.DEFAULTS, "headers": {}, **named}
    return {name: made[name] for name in PUSH}


def subscriptions(field: str, value: object) -> dict[str, SubscriptionQuota] | None:
    """Sorted by name; None if no subscription has a quota of its own."""
    if not isinstance(value, Mapping):
        raise TopicError(field, f'must be an object such as {{"audit": {{"qps": 20}}}}, not {format_value(value)}')
    if len(value) > MOST_SUBSCRIPTIONS:
        raise TopicError(field, f"names {len(value):,} subscriptions: at most {MOST_SUBSCRIPTIONS} are allowed")
    quotas: dict[str, SubscriptionQuota] = {}
    for name in sorted(value, key=str):
        if not isinstance(name, str) or not _SUBSCRIPTION.fullmatch(name):
            rule = "1 to 64 letters, digits or '-', the first a letter or digit"
            raise TopicError(f"{field}.{name}", f"is not the name of a subscription: {rule}")
        named = parts(f"{field}.{name}", value[name], SUBSCRIPTION_QUOTA)
        if named:
            quota = {part: SUBSCRIPTION_QUOTA[part](f"{field}.{name}.{part}", given) for part, given in named}
            quotas[name] = SubscriptionQuota(**quota)
    return quotas or None


BACKOFF: Mapping[str, Rule] = {
    "base": number(0.001, 86_400),
    "factor": number(1, 100),
    "cap": number(0.001, 2_592_000),
    "jitter": number(0, 1),
}

PUSH: Mapping[str, Rule] = {
    "url": push.url,
    "timeout": number(0.01, 3_600),
    "secret_ref": optional(push.secret_ref),
    "headers": push.headers,
    "concurrency": optional(whole(1, 1_000_000)),
}

SUBSCRIPTION_QUOTA: Mapping[str, Rule] = {
    "qps": number(0.01, MOST_QPS),
    "burst": whole(1, MOST_QPS),
    "concurrency": whole(1, 1_000_000),
}

# In the order in which a topic is written.
FIELDS: Mapping[str, Rule] = {
    "qps": number(0.01, MOST_QPS),
    "groups": whole(1, MOST_GROUPS),
    "burst": whole(1, MOST_QPS),
    "borrow": flag,
    "weight": number(0.01, MOST_QPS),
    "reserve": number(0, MOST_QPS),
    "concurrency": optional(whole(1, 1_000_000)),
    "spread": whole(1, 65_536),
    "max_attempts": whole(1, 1_000),
    "backoff": backoff,
    "ttl": number(0.001, _YEARS_10),
    "dead_letter_expired": flag,
    "ack_wait": number(0.001, 604_800),
    "max_backlog": optional(whole(1, 10**15)),
    "ordered": flag,
    "ageing": optional(number(0, 1)),
    "state": state,
    "push": optional(push_settings),
    "subscriptions": optional(subscriptions),
}

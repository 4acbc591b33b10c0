"""Valid and invalid specs as people write them, for tests of all readers of topics."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PlainLimits:
    partitions: int = 128
    group_qps: float = 50.0
    max_group_qps: float = 150.0


LIMITS = PlainLimits()

NUMBERS = ("qps", "weight", "reserve", "ttl", "ack_wait", "ageing")
WHOLE = ("groups", "burst", "concurrency", "spread", "max_attempts", "max_backlog")
FLAGS = ("borrow", "dead_letter_expired", "ordered")
OPTIONAL = ("concurrency", "max_backlog", "ageing", "push", "subscriptions")
BAD_NUMBERS = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "-1",
    "true",
    '"5"',
    "[]",
    "{}",
    "9" * 5_000,
)

# Fault row 19: (the value in etcd, the invalid field, words of the reason).
BAD = [
    (b"", "", "is not JSON"),
    (b"qps=5", "", "is not JSON"),
    (b'{"qps": 5', "", "is not JSON"),
    (b'{"qps": 5} x', "", "is not JSON"),
    (b'{"qps": 0x5}', "", "is not JSON"),
    (b"\xff\xfe{", "", "it isn't UTF-8"),
    ('{"qps": 5}'.encode("utf-16"), "", "it isn't UTF-8"),
    (b'\xef\xbb\xbf{"qps": 5}', "", "is not JSON"),
    (b"[" * 60_000, "", "nested too deeply"),
    (b'{"qps":' * 9_000, "", "nested too deeply"),
    (b'{"qps": 5, "push": {"a": "' + b"x" * 1_000_000 + b'"}}', "", "bytes long: at most 65,536"),
    (b"null", "", "must be a JSON object"),
    (b"5", "", "must be a JSON object"),
    (b"NaN", "", "must be a JSON object"),
    (b'"qps"', "", "must be a JSON object"),
    (b'[{"qps": 5}]', "", "must be a JSON object"),
    (b"{}", "qps", "is missing"),
    (b'{"burst": 5}', "qps", "is missing"),
    (b'{"qps": 5, "qps": 6}', "qps", "is given twice"),
    (b'{"qps": 5, "qps": 5}', "qps", "is given twice"),
    (b'{"qps": 5, "backoff": {"cap": 5, "cap": 6}}', "cap", "is given twice"),
    (b'{"qps": 5, "QPS": 6}', "QPS", "is not a field of a topic: the fields are qps, groups"),
    (b'{"qps": 5, "": 6}', "", "is not a field"),
    (b'{"qps": 5, "a\\nb": 6}', '"a\\nb"', "is not a field"),
    (b'{"qps": 5, "\\ud800": 6}', '"\\ud800"', "is not a field"),
    (b'{"qps": 0}', "qps", "must be a number from 0.01 to 1,000,000, not 0"),
    (b'{"qps": 0.009}', "qps", "must be a number"),
    (b'{"qps": 1000000.1}', "qps", "must be a number"),
    (b'{"qps": null}', "qps", "not null"),
    (b'{"qps": 5, "groups": 0}', "groups", "must be a whole number from 1"),
    (b'{"qps": 5, "groups": 1.5}', "groups", "must be a whole number"),
    (b'{"qps": 5, "groups": null}', "groups", "must be a whole number"),
    (b'{"qps": 5, "burst": 0}', "burst", "must be a whole number"),
    (b'{"qps": 5, "ageing": 1.01}', "ageing", "must be a number from 0 to 1"),
    (b'{"qps": 5, "state": "stopped"}', "state", "must be one of active, paused, draining"),
    (b'{"qps": 5, "state": null}', "state", "must be one of"),
    (b'{"qps": 5, "state": ["active"]}', "state", "must be one of"),
    (b'{"qps": 5, "backoff": 5}', "backoff", "must be an object with base, factor, cap, jitter"),
    (b'{"qps": 5, "backoff": null}', "backoff", "must be an object"),
    (b'{"qps": 5, "backoff": {"bse": 1}}', "backoff.bse", "is unknown"),
    (b'{"qps": 5, "backoff": {"factor": 0.5}}', "backoff.factor", "must be a number from 1"),
    (b'{"qps": 5, "backoff": {"jitter": 1.5}}', "backoff.jitter", "must be a number from 0 to 1"),
    (b'{"qps": 5, "backoff": {"base": 700}}', "backoff.cap", "must be at least backoff.base, 700"),
    (b'{"qps": 5, "push": "http://a"}', "push", "must be an object"),
    (b'{"qps": 5, "push": {}}', "push.url", "is missing"),
    (b'{"qps": 5, "push": {"url": "acme.example"}}', "push.url", "must begin with http:// or https://"),
    (b'{"qps": 5, "push": {"url": "http://a", "timeout": NaN}}', "push.timeout", "must be a number"),
    (b'{"qps": 5, "push": {"url": "http://a", "x": [1e400]}}', "push.x", "is unknown"),
]
BAD += [
    (f'{{"qps": 5, "{field}": {bad}}}'.encode().replace(b'"qps": 5, "qps"', b'"qps"'), field, "must be a ")
    for field in (*NUMBERS, *WHOLE)
    for bad in BAD_NUMBERS
]
BAD += [
    (f'{{"qps": 5, "{field}": {bad}}}'.encode(), field, "must be true or false")
    for field in FLAGS
    for bad in ("1", "0", "null", '"true"', "[]")
]
BAD += [
    (f'{{"qps": 5, "backoff": {{"{part}": {bad}}}}}'.encode(), f"backoff.{part}", "must be a number")
    for part in ("base", "factor", "cap", "jitter")
    for bad in (*BAD_NUMBERS, "null")
]

# F12: (a number, its form in a sentence).
LARGE_NUMBERS = [
    ("1e400", "not 1e400"),
    ("-1e400", "not -1e400"),
    ("1" + "0" * 400, "not 1" + "0" * 36 + "..."),
    ("Infinity", "not an infinite number"),
    ("-Infinity", "not an infinite number"),
]

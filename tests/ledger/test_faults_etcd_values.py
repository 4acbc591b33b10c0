"""Tests of F4: foreign values in etcd, under each prefix that the code reads."""

import json

import pytest

from tests.ledger.handlers import UNEASY
from tests.ledger.puts import some
from tests.ledger.stranger import Stranger
from tests.support.until import until

pytestmark = pytest.mark.real

VALUES = [b"", b"\xff\xfe\x00", b"null", b"[]", b"{}", b"7", b"NaN", b'"x"', b'{"id": 7}', b"[" * 20_000,
          b'{"zz":' * 20_000, b'{"a": 1, "a": 2}', b'{"id":"\xff"}', b'{"qps": 1e999}',
          b'{"qps": 1%b}' % (b"0" * 5_000),
          b'{"qps": NaN, "groups": -1}', b'{"match": "dev-*", "topic": {"qps": NaN}}', b'{"generation": -1}',
          b'{"id": "x", "epoch": 1e400}', b'{"partitions": [99999999999999999999]}', b'{"made": -9}']  # fmt: skip
KEYS = [
    *(f"{kind}/evil" for kind in ("topics", "accepted", "templates", "nodes", "owners", "plan", "authors", "done")),
    *(f"{kind}/" for kind in ("topics", "accepted", "templates", "nodes", "plan", "history")),
    *(f"{kind}/a b" for kind in ("topics", "accepted", "templates")),
    *(f"{kind}/acme" for kind in ("topics", "accepted", "authors", "templated")),
    *(f"{kind}/node-a" for kind in ("nodes", "plan", "done")),
    *(f"history/acme/{slot}" for slot in ("0", "x", "9999999999")),
    *("held/3/9", "held/x", "held/99/1", "held/3/x", "epochs/4", "epochs/x", "owners/3/4", "owners/99", "topics/x/y"),
    *("generation", "generation/x", "nobody/knows"),
]
NAMED = [
    *(f"/evenlane/online/{key}" for key in ("nodes/evil", "owners/evil", "plan/evil", "held/3/9", "templates/evil")),
    *("a topic is refused, the last good one stays", "an accepted topic is not valid and is passed over"),
]
"""Texts in the node's log."""


def absurd(created: str, high: int) -> bytes:
    """A record of a previous owner with impossible contents."""
    far = 2**62
    lane = {"created": created, "high": high, "running": [0, far], "done": [far + 1], "failed": [[far + 2, 5]]}
    blocked = {"created": created, "sequences": [0, far], "seconds": 1e300}
    lanes = {"lanes": lane, "later": lane, "odd": lane}
    return json.dumps({"id": "x", "epoch": far, "lanes": lanes, "blocked": {"lanes": blocked}}).encode()


async def test_node_skips_foreign_values_and_names_them(world):
    """F4, L: while it runs, and when it starts."""
    node = await world.node("uneasy", lease_ttl=2)
    await world.topics("acme")
    producer = await world.producer()
    for number, value in enumerate(VALUES):
        for key in KEYS:
            await world.etcd.put(f"/evenlane/online/{key}", value)
        await world.put(producer, some("acme", f"v{number}", 5))
    async with Stranger(world.servers.nats.url) as stranger:
        stranger.publish(b"lanes.online.3.evil.0.mid")  # its topic could come from a template
        await stranger.flush()
    await world.handled()
    assert node.running
    assert 0 == await node.stop()
    lease = await world.etcd.grant(60)
    for number in range(8):
        created = (await world.api(f"STREAM.INFO.LANES_online_{number}"))["created"]
        await world.etcd.put(f"/evenlane/online/held/{number}/1", absurd(created, 0 if number < 4 else 2**70), lease)
    await node.start()
    await world.put(producer, some("acme", "after", 5))
    await world.handled()
    await until(lambda: node.logged(" owned ") == 16, 20, "each partition to be owned twice")
    await until(lambda: [] == [text for text in NAMED if not node.logged(text)], 20, "all to be named")
    assert node.raised() <= {UNEASY}
    assert node.running

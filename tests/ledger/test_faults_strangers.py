"""Tests of F4 and F12: foreign clients write into streams."""

from itertools import cycle, islice, product
from random import Random

import pytest

from tests.ledger.handlers import UNEASY
from tests.ledger.puts import some
from tests.ledger.stranger import Stranger
from tests.support import hostile
from tests.support.until import until

pytestmark = pytest.mark.real

HOSTILE, GOOD = 10_000, 50  # messages; the good ones for each thousand hostile ones
WORDS = (b"acme", b"0", b"mid", b"high", b"low", b"urgent", b"_stray", b"\xff", b"\x00", b"-1", b"007", b"9" * 400,
         b"1", b"20000", b"999999999", b"\xc3\xa4", b"\x1b[2J", b"x" * 300, b"other")  # fmt: skip


def blocks(random: Random) -> list[bytes]:
    """All headers with all odd values, alone and together, and blocks that aren't headers."""
    alone = hostile.every_header()
    lines = [block.split(b"\r\n", 1)[1].removesuffix(b"\r\n\r\n") for block in alone]
    twice = [b"NATS/1.0\r\n%b\r\n\r\n" % b"\r\n".join(random.sample(lines, 4)) for _ in range(len(alone))]
    odd = [
        first + b"\r\n".join(random.sample(lines, 2)) + end for first, end in product(hostile.FIRST_LINES, hostile.ENDS)
    ]
    return [*alone, *twice, *odd]


def messages(random: Random, partitions: int) -> list[tuple[bytes, bytes, bytes]]:
    """Subject, headers, body."""
    found = []
    for block in islice(cycle(blocks(random)), HOSTILE):
        kind, more = random.choice(((b"lanes", 0), (b"lanes", 0), (b"later", 1)))
        words = [b"acme", b"0", b"mid", b"%d" % random.choice((0, 472_222, 999_999_999))][: 3 + more]
        if random.random() < 0.3:
            words[random.randrange(len(words))] = random.choice(WORDS)
        subject = b".".join([kind, b"online", b"%d" % random.randrange(partitions), *words])
        found.append((subject, block, random.randbytes(random.choice((0, 1, 100)))))
    return [*found, *(each for partition in range(partitions) for each in [_asking(partition)] * 20)]


def _asking(partition: int) -> tuple[bytes, bytes, bytes]:
    """A message that the server accepts, since it names its stream. A copy of it would go to another stream."""
    return (
        b"lanes.online.%d.acme.0.mid" % partition,
        b"NATS/1.0\r\nNats-Expected-Stream: LANES_online_%d\r\n\r\n" % partition,
        b"",
    )


DOCUMENTS = [*(number.encode() for number in hostile.NUMBERS), *hostile.ODD]
ASKED = (b"busy.online.me", b"busy.online.\xff", b"dead.online.acme", b"dead.online.\x00", b"meter.online.me",
         b"shares.online.told", b"shares.online.asked", b"shares.online.node.node-a", b"ask.online.why.acme",
         b"ask.online.why.\xff", b"ask.online.overview", b"ask.online.empty", b"ask.online.drop.acme",
         b"backlog.online.me", b"settled.online.lanes.99", b"settled.online.\xff.3")  # fmt: skip
UNKNOWN = b"\x93\x03\x01\x01"  # a settle record of version 3, under an unknown epoch
SETTLED = [b"settled.online.%b.%d" % (kind, number) for kind in (b"lanes", b"later") for number in range(8)]


async def test_good_messages_are_handled_among_hostile_ones(world):
    """F4, L: 10,000 hostile messages wait when the node starts, or arrive while it runs. The node handles all good ones
    among them, and each hostile one ends, too.
    """
    node = await world.node("uneasy")
    await world.topics("acme", "other")
    producer = await world.producer()
    await world.put(producer, some("acme", "first", 10))
    await world.handled()
    assert 0 == await node.stop()
    written = messages(Random(4), 8)
    async with Stranger(world.servers.nats.url) as stranger:
        for subject, document in product(SETTLED, [*DOCUMENTS, UNKNOWN]):
            stranger.publish(subject, b"", document)
        for start in range(0, len(written), 1_000):
            if start == HOSTILE // 2:
                await node.start()
            for message in written[start : start + 1_000]:
                stranger.publish(*message)
            for subject, document in [*product(ASKED, DOCUMENTS), *product(SETTLED, [UNKNOWN])]:
                stranger.publish(subject, b"", document)
            await stranger.flush()
            await world.put(producer, some("acme", f"good{start}", GOOD))
    await world.handled()
    assert {*world.acknowledged} <= {*world.ids()}

    async def none_left() -> bool:
        asked = [(f"LANES_online_{each}", f"lanes.online.{each}.acme.>") for each in range(8)]
        held = [await world.api(f"STREAM.INFO.{name}", {"subjects_filter": subject}) for name, subject in asked]
        return not any(each["state"].get("subjects") for each in held)

    await until(none_left, 60, "all of the project to end")
    assert node.running
    assert node.raised() <= {UNEASY}
    assert node.logged("a header is not valid: its message goes to the dead letters")
    assert node.logged("a header is not valid, and is passed over")
    assert node.logged("the settle log holds records that are none: passed over")
    assert 0 == node.logged("fenced: a newer owner settles")
    assert 0 == await node.stop()

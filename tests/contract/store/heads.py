"""The contract of `heads`, `next_of` and `count`: reads of one subject, without bodies or with."""

from time import time_ns

from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE


class HeadContract:
    async def test_head_has_all_but_body(self, world):
        headers = h.encode({h.ID: "acme:7", "Colour": "red"})
        before = time_ns()
        await fill(world, 1, project="other")
        await world.store.put(subject(world.env), headers, b"12345")
        [head] = await world.store.heads(LANE, subject(world.env), 1, 10)
        assert (2, 5, "acme:7") == (head.sequence, head.size, h.value(head.headers, h.ID))
        assert {"Colour": "red"} == h.decode_user(head.headers)
        assert before - 5_000_000_000 <= head.at <= time_ns() + 5_000_000_000
        assert head.at == (await world.store.get(LANE, [2]))[0].at

    async def test_head_of_message_without_headers(self, world):
        await fill(world, 1)
        [head] = await world.store.heads(LANE, subject(world.env), 1, 10)
        assert (1, 1, None) == (head.sequence, head.size, h.value(head.headers, h.ID))

    async def test_heads_are_paged_from_any_sequence(self, world):
        await fill(world, 5)
        assert [2, 3] == [head.sequence for head in await world.store.heads(LANE, subject(world.env), 2, 2)]
        assert [] == await world.store.heads(LANE, subject(world.env), 6, 2)

    async def test_next_of_returns_whole_messages(self, world):
        """E5: with bodies, so that no message is read twice; one message, or a few."""
        await fill(world, 2, project="other")
        await fill(world, 3)
        whole = await world.store.get(LANE, [3, 4, 5])
        assert whole == await _bare(world, 1, 10)
        assert whole[:1] == await _bare(world, 1, 1)
        assert whole[1:] == await _bare(world, 4, 2)

    async def test_spoofed_server_headers_do_not_change_reads(self, world):
        """F4: a producer may write a status into the first line, and headers of the server."""
        own = {"Num-Pending": "0", "Sequence": "99", "Time-Stamp": "x", "Subject": "y", "Msg-Size": "7"}
        spoof = b"".join(b"Nats-%b: %b\r\n" % (name.encode(), text.encode()) for name, text in own.items()) + b"\r\n"
        for first in (b"NATS/1.0", b"NATS/1.0 204 EOB", b"NATS/1.0 404 No", b"NATS/1.0 503"):
            await world.store.put(subject(world.env), first + b"\r\n" + spoof, b"12345")
        await fill(world, 2)
        sequences = [1, 2, 3, 4, 5, 6]
        for read in (
            await world.store.get(LANE, sequences),
            await world.store.next_of(LANE, subject(world.env), 1, 10),
            [each for start in sequences for each in await world.store.next_of(LANE, subject(world.env), start, 1)],
        ):
            assert sequences == [each.sequence for each in read]
            assert [subject(world.env)] * 6 == [each.subject for each in read]
            assert all(abs(each.at - time_ns()) < 60_000_000_000 for each in read)
        assert sequences == await world.store.scan(LANE, subject(world.env), 1, 10)
        assert [5, 5, 5, 5, 1, 1] == [head.size for head in await world.store.heads(LANE, subject(world.env), 1, 10)]

    async def test_next_of_is_empty_after_last_message(self, world):
        await fill(world, 2)
        await world.store.delete(LANE, 2)
        assert [[], []] == [await world.store.next_of(LANE, subject(world.env), 2, limit) for limit in (1, 5)]
        assert [] == await world.store.next_of(LANE, subject(world.env, project="nobody"), 1, 1)

    async def test_count_starts_at_any_sequence(self, world):
        await fill(world, 5)
        await fill(world, 2, project="other")
        await world.store.delete(LANE, 4)
        assert [4, 2, 0] == [await world.store.count(LANE, subject(world.env), start) for start in (1, 3, 6)]

    async def test_all_subjects_of_a_lane_are_read_from_a_sequence(self, world):
        """K10, E5: as a takeover does, which begins between settled messages."""
        await fill(world, 3)
        await fill(world, 2, project="other")
        await world.store.delete(LANE, 2)
        assert [4, 3, 0] == [await world.store.count(LANE, ">", start) for start in (1, 2, 6)]
        assert [3, 4] == [each.sequence for each in await world.store.next_of(LANE, ">", 2, 2)]
        assert [5] == [each.sequence for each in await world.store.next_of(LANE, ">", 5, 64)]
        assert [] == await world.store.next_of(LANE, ">", 6, 64)

    async def test_held_counts_dead_letters_of_project(self, world):
        for project in ("acme", "other"):
            await world.store.put(names.dead_subject(world.env, project), b"", b"")
        assert ({names.dead_subject(world.env, "acme"): 1}, 2) == await world.store.count_by_subject(names.DEAD, "acme")


async def _bare(world, start, limit):
    """The result of `next_of`, with the headers as `get` returns them: a store may add the number of later messages."""
    found = await world.store.next_of(LANE, subject(world.env), start, limit)
    return await world.store.get(LANE, [each.sequence for each in found if each.body])

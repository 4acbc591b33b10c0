"""The migration of streams to another number of replicas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.streams.migrate import AT_ONCE, migrate
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.replication_port import StreamReplicas
from evenlane.engine.errors import EvenlaneError
from tests.support.virtual_time import in_virtual_time


class Servers:
    """Servers that take a few looks to copy a stream, and don't answer each request."""

    def __init__(self, replicas: list[int], most: int = 5, losses: list[bool] = ()) -> None:
        self.streams = {f"LANES_online_{number}": [count, count] for number, count in enumerate(replicas)}
        self.most, self.losses = most, list(losses)
        self.most_copying, self.changes = 0, []

    def _lose(self) -> None:
        if self.losses and self.losses.pop():
            raise Lost("an election")

    async def list_streams(self) -> list[StreamReplicas]:
        self._lose()
        copying = [stream for stream in self.streams.values() if stream[1] < stream[0]]
        self.most_copying = max(self.most_copying, len(copying))
        for stream in copying:
            stream[1] += 1
        return [StreamReplicas(name, *counts) for name, counts in sorted(self.streams.items())]

    async def set_replicas(self, stream: str, replicas: int) -> None:
        self._lose()
        if replicas > self.most:
            raise Refused("too few servers")
        self.changes.append(stream)
        self.streams[stream] = [replicas, min(replicas, self.streams[stream][1])]


@given(
    replicas=st.lists(st.integers(1, 5), min_size=1, max_size=40),
    target=st.integers(1, 5),
    losses=st.lists(st.booleans(), max_size=30),
)
def test_every_stream_gets_its_replicas_once_and_few_copy_at_a_time(replicas, target, losses):
    """P11: from any start, with answers that are lost. It returns when all replicas are complete."""

    @in_virtual_time
    async def check() -> None:
        servers = Servers(replicas, losses=losses)
        seen = []
        changed = await migrate(servers, "online", target, lambda *each: seen.append(each))
        assert changed == sum(count != target for count in replicas)
        assert {(target, target)} == {tuple(counts) for counts in servers.streams.values()}
        assert len(set(servers.changes)) == len(servers.changes) == changed
        assert servers.most_copying <= AT_ONCE
        assert seen[-1] == (len(replicas), len(replicas))
        assert seen == sorted(seen)

    check()


@in_virtual_time
async def test_stream_that_a_node_creates_meanwhile_is_changed_too():
    """P11: a node that starts with `replicas = 1` while streams move."""
    servers = Servers([1] * 12)
    created = False

    def on_progress(_done: int, _all: int) -> None:
        nonlocal created
        if not created and servers.changes:
            created = True
            servers.streams["LATER_online_0"] = [1, 1]

    assert await migrate(servers, "online", 3, on_progress) == 13
    assert {(3, 3)} == {tuple(counts) for counts in servers.streams.values()}


async def test_refusal_ends_it_with_the_sentence_of_the_store():
    with pytest.raises(Refused, match="too few servers"):
        await migrate(Servers([1, 1], most=1), "online", 3)


async def test_environment_without_streams_is_an_error():
    with pytest.raises(EvenlaneError, match="environment 'online' has no streams"):
        await migrate(Servers([]), "online", 3)

"""The handlers of a simulation, which treat each message as the script says."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
from tests.simulation.loop import NODE, SECOND

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message
    from tests.simulation.events import PutAt
    from tests.simulation.promises import Promises
    from tests.simulation.world import Simulation
    from tests.support.promises.history import How, Run

_BACKOFF_S = 1.2  # no delay of the topics' backoff is longer


class Handling:
    """`handle` is the handler of every node of one cluster, which `promises` watch."""

    def __init__(self, world: Simulation, promises: Promises) -> None:
        self._w, self._promises = world, promises
        self._puts = {put.uid: put for put in world.script.puts}
        self._pauses: Counter[str] = Counter()  # message -> pauses that it has asked for
        self._begun: Counter[str] = Counter()  # killer -> handlers of it so far

    async def handle(self, message: Message) -> None:
        world, put = self._w, self._puts[message.id]
        run = self._promises.starts(message)
        world.note(
            "handles", message=message.id, stream=message.stream, sequence=message.sequence, epoch=message.epoch,
            attempt=message.attempt,
        )  # fmt: skip
        how: How = "cancelled"
        after = 0.0
        try:
            await asyncio.sleep(put.takes)
            if put.kills and self._decide_death(put):
                await self._kill(message.id)
            how, after = self._ending(put, message.attempt)
            self._raise(put, how, after)
        finally:
            if not world.loop.is_closed():
                if how == "cancelled" and self._hung(put, run):
                    how, after = "failed", _BACKOFF_S
                self._promises.ends(message, run, how, after)
                world.note("handled" if how == "well" else how, message=message.id)

    def _decide_death(self, put: PutAt) -> bool:
        """Whether this handler of a killer ends its process. Otherwise it fails."""
        begun = self._begun[put.uid]
        self._begun[put.uid] += 1
        return begun % 2 == 0 if put.alternates else begun >= put.fails

    def _ending(self, put: PutAt, attempt: int) -> tuple[How, float]:
        """The end of the handler, and the seconds that the message must wait then."""
        if self._pauses[put.uid] < put.pauses:
            self._pauses[put.uid] += 1
            return "paused", put.after
        if attempt > put.fails and not put.kills:
            return "well", 0.0
        return "failed", put.after if put.way == "retry" else _BACKOFF_S

    def _raise(self, put: PutAt, how: How, after: float) -> None:
        if how == "paused":
            raise Pause(after)
        if how != "failed":
            return
        if put.way == "retry":
            raise Retry(after)
        if put.way == "reject":
            raise Reject("as the script says")
        raise RuntimeError("as the script says")

    def _hung(self, put: PutAt, run: Run) -> bool:
        ack_wait = self._w.script.topics[put.project].ack_wait
        return self._w.loop.now - run.start > ack_wait * SECOND

    async def _kill(self, uid: str) -> None:
        """End the process as `os._exit` does: nothing of it runs any more."""
        self._w.processes.die(NODE.get(), uid)
        await self._w.loop.create_future()

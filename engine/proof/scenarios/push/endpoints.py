"""The customers' endpoints of `push`, in separate processes, and the code that starts them and their phases.

Each customer has a port. The endpoints answer after `service` seconds, unless a phase of their plan says otherwise. The
times of phases are seconds since the load's first instant.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import msgspec
import uvloop
from aiohttp import web

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.proof.broker.child import ModuleProcess, read_record, write_record


class EndpointPhase(msgspec.Struct, frozen=True):
    """From `start` until `end` (s) they are `kind`: slow, silent, dead, flapping or huge."""

    kind: str
    start: float
    end: float


class EndpointPlan(msgspec.Struct, frozen=True):
    """The plan of `count` endpoints. Times in s."""

    count: int
    service: float
    slow: float = 0.0  # in a slow phase
    phases: tuple[EndpointPhase, ...] = ()


class EndpointServer(ModuleProcess):
    """Inside `async with` they listen, on `ports`. Raises EvenlaneError."""

    module = "evenlane.engine.proof.scenarios.push.endpoints"
    title = "the process of the endpoints"

    def __init__(self, plan: EndpointPlan) -> None:
        super().__init__(plan)
        self.ports: list[int] = []

    async def on_started(self) -> None:
        self.ports = await self._receive(list[int])

    async def begin(self, origin: int) -> None:
        """The load's first instant is `origin`, ns of `now_ns`."""
        await self._send(origin)


# ---- in the process

_HOST = "127.0.0.1"
_SILENCE_S = 60.0  # longer than any client waits
_FLAP_S = 0.5  # how long it answers, and then how long it fails
_PIECE = b"x" * 65_536


class Customers:
    def __init__(self, plan: EndpointPlan) -> None:
        self._plan = plan
        self._origin: int | None = None
        self._runners: list[web.AppRunner] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        phase = self._phase()
        match phase.kind if phase is not None else "":
            case "slow":
                await asyncio.sleep(self._plan.slow)
            case "silent":
                await asyncio.sleep(_SILENCE_S)
            case "flapping" if int(self._now() / _FLAP_S) % 2:
                return web.Response(status=500, text="try again")
            case "huge":
                return await _endless(request)
            case _:
                await asyncio.sleep(self._plan.service)
        return web.Response(status=204)

    async def listen(self) -> list[int]:
        for _ in range(self._plan.count):
            await self._listen_on(0)
        return self._ports

    async def _listen_on(self, port: int) -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", self.serve)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, _HOST, port).start()
        self._runners.append(runner)

    @property
    def _ports(self) -> list[int]:
        return [int(runner.addresses[0][1]) for runner in self._runners]

    async def carry_out(self, origin: int) -> None:
        """Serve the plan. During a dead phase no server listens, and open connections are cut."""
        self._origin, ports = origin, self._ports
        for phase in self._plan.phases:
            if phase.kind == "dead":
                await asyncio.sleep(phase.start - self._now())
                while self._runners:
                    await self._runners.pop().cleanup()
                await asyncio.sleep(phase.end - self._now())
                for port in ports:
                    await self._listen_on(port)
        await asyncio.Event().wait()

    def _now(self) -> float:
        return (now_ns() - self._origin) / 1e9 if self._origin is not None else -1.0

    def _phase(self) -> EndpointPhase | None:
        now = self._now()
        return next((phase for phase in self._plan.phases if phase.start <= now < phase.end), None)


async def _endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):  # the client has disconnected
        while True:
            await response.write(_PIECE)
    return response


async def _serve() -> None:
    customers = Customers(await asyncio.to_thread(read_record, EndpointPlan))
    write_record(await customers.listen())
    await customers.carry_out(await asyncio.to_thread(read_record, int))


def main() -> None:
    tune_gc()
    uvloop.run(_serve())


if __name__ == "__main__":
    main()

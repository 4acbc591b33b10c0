"""A web application that puts messages in its requests, and handles them in a node of its own.

    pip install fastapi uvicorn
    evenlane topics set orders-eu --qps 50
    uvicorn examples.fastapi_app:web

At its shutdown the node drains: running handlers end, and nothing that was put is lost. Where handlers need more than a
web process has left, run them elsewhere with `evenlane run examples.fastapi_app:lanes`, and leave the node out here.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from evenlane import BacklogFull, Engine, Evenlane, InvalidName, Message, Producer, UnknownProject


class Order(BaseModel):
    number: int
    seconds: float = 0.0


lanes = Evenlane()


@lanes.handler("orders-*")
async def bill(message: Message[Order]) -> None:
    print(f"billing {message.project} {message.data.number}", flush=True)
    await asyncio.sleep(message.data.seconds)
    print(f"billed {message.project} {message.data.number}", flush=True)


@asynccontextmanager
async def lifespan(_web: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with Producer() as producer, Engine(lanes) as engine, asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.run())
        yield {"producer": producer}
        engine.stop()  # the group waits for the end of the drain


web = FastAPI(lifespan=lifespan)


@web.post("/orders/{region}", status_code=202)
async def order(region: str, given: Order, request: Request) -> dict[str, int]:
    try:
        receipt = await request.state.producer.put(f"orders-{region}", given, id=f"order-{given.number}")
    except (UnknownProject, InvalidName) as error:
        raise HTTPException(404, str(error)) from error
    except BacklogFull as error:
        raise HTTPException(429, str(error)) from error
    return {"number": given.number, "sequence": receipt.sequence}

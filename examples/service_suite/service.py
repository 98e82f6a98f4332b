"""A service on FastAPI and FastStream: takes orders by HTTP, bills each from a topic, and tells what was billed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from faststream import AckPolicy
from faststream.kafka import KafkaBroker
from pydantic import BaseModel


class Order(BaseModel):
    """One order."""

    number: int
    amount: int


def build(servers: str, group: str) -> FastAPI:
    """Build the service; its consumer commits an order when it is billed."""
    broker = KafkaBroker(servers)
    billed: dict[int, int] = {}

    @broker.subscriber("orders", group_id=group, auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher("bills")
    async def bill(order: Order) -> Order:
        billed[order.number] = order.amount
        return order

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await broker.start()
        yield
        await broker.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def take(order: Order) -> None:
        await broker.publish(order, "orders", key=str(order.number).encode())

    @app.get("/billed")
    async def tell() -> dict[int, int]:
        return billed

    return app

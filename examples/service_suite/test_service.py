"""Tests of the service as its clients see it: by HTTP, over a broker that rebalances, refuses, and is killed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import service
from httpx import ASGITransport, AsyncClient

from kohort.testing import Broker

pytestmark = [pytest.mark.anyio, pytest.mark.kohort(topics={"orders": 2, "bills": 1})]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def serving(servers: str, group: str) -> AsyncIterator[AsyncClient]:
    """Have the service run, and a client of it."""
    app = service.build(servers, group)
    async with app.router.lifespan_context(app), AsyncClient(transport=ASGITransport(app), base_url="http://s") as it:
        yield it


async def order(client: AsyncClient, *numbers: int) -> None:
    for number in numbers:
        assert (await client.post("/orders", json={"number": number, "amount": 3})).status_code == 202


async def billed(client: AsyncClient, *numbers: int) -> None:
    """Wait for the bills of all these orders; pytest's own time limit ends a wait in vain."""
    while {int(number) for number in (await client.get("/billed")).json()} != set(numbers):
        await asyncio.to_thread(threading.Event().wait, 0.02)


async def test_orders_are_billed_and_committed(kohort: Broker, kohort_group: str) -> None:
    async with serving(kohort.bootstrap_servers, kohort_group) as client:
        await order(client, 1, 2, 3)
        await billed(client, 1, 2, 3)
    assert sum(kohort.group(kohort_group).committed().values()) == 3


async def test_rebalance_in_the_middle_loses_no_order(kohort: Broker, kohort_group: str) -> None:
    async with serving(kohort.bootstrap_servers, kohort_group) as client:
        await order(client, 1, 2)
        await billed(client, 1, 2)
        await asyncio.to_thread(kohort.group(kohort_group).rebalance)
        await order(client, 3, 4)
        await billed(client, 1, 2, 3, 4)


async def test_broker_that_does_not_take_a_commit_is_asked_again(kohort: Broker, kohort_group: str) -> None:
    kohort.faults.answer("OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", group=kohort_group).times(2)
    async with serving(kohort.bootstrap_servers, kohort_group) as client:
        await order(client, 1)
        await billed(client, 1)
    assert sum(kohort.group(kohort_group).committed().values()) == 1


async def test_broker_that_is_killed_has_every_order_that_was_taken(kohort_process: Broker) -> None:
    async with serving(kohort_process.bootstrap_servers, "billing") as client:
        await order(client, 1, 2)
        await billed(client, 1, 2)
        await asyncio.to_thread(kohort_process.kill)
        await asyncio.to_thread(kohort_process.start)
        await order(client, 3)
        await billed(client, 1, 2, 3)

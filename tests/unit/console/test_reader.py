"""The reader behind the console: one question however many tabs, a broker that goes and comes, slow browsers."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

import kohort
from kohort.errors import KohortError
from kohort.ids import TopicPartition
from kohort.testing import Broker
from support.waiting import until

for package in ("starlette", "uvicorn", "jinja2"):
    pytest.importorskip(package)

from kohort.console import app, pages  # noqa: E402
from kohort.console.app import EventStream  # noqa: E402
from kohort.console.reader import ClusterReader, Told  # noqa: E402

GROUP = {TopicPartition("orders", 0): 0}


def reader_of(address: str, *, timeout_ms: int = 20_000) -> ClusterReader:
    options = {"bootstrap.servers": address, "default.api.timeout.ms": timeout_ms}
    return ClusterReader(options, ThreadPoolExecutor(4))


def test_tabs_share_one_question() -> None:
    """A hundred tabs cost the broker what one costs."""
    with Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        admin.alter_group_offsets("billing", GROUP)
        reader = reader_of(broker.bootstrap_servers)

        async def ask(tabs: int) -> float:
            before = reader.admin.metrics()["request-total"]
            await asyncio.gather(*[reader.group("billing").look(fresh_s=0) for _ in range(tabs)])
            await asyncio.gather(*[reader.look() for _ in range(tabs)])
            return reader.admin.metrics()["request-total"] - before

        async def count() -> list[float]:
            await ask(1)
            reader.view.read_at = 0.0
            one = await ask(1)
            reader.view.read_at = 0.0
            return [one, await ask(100)]

        one, hundred = asyncio.run(count())
        reader.close()
    assert 0 < hundred < 3 * one, "a look may be due in between"


def test_names_of_groups_are_shown_while_the_rest_is_read() -> None:
    with Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        admin.alter_group_offsets("billing", GROUP)
        broker.faults.delay("OffsetFetch", 0.3)
        reader = reader_of(broker.bootstrap_servers)

        async def look() -> tuple[pages.Values, pages.Values]:
            first = await pages.groups(reader, {})
            await reader.know()
            return first, await pages.groups(reader, {})

        first, whole = asyncio.run(look())
        reader.close()
    assert [(found["is_known"], found["groups"][0]["id"]) for found in (first, whole)] == [
        (False, "billing"),
        (True, "billing"),
    ]
    assert (first["groups"][0]["lag"], whole["groups"][0]["lag"]) == (None, 0)


def test_a_broker_that_restarts_under_an_open_page() -> None:
    """What is known stays, with the reason; a broker that has forgotten the history is read from its beginning."""
    with Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
            for offset in range(3):
                admin.alter_group_offsets("billing", GROUP)
                admin.alter_group_configs("billing", {"consumer.session.timeout.ms": 46_000 + offset})
        reader = reader_of(broker.bootstrap_servers, timeout_ms=500)
        group = reader.group("billing")

        async def renew() -> None:
            await asyncio.wait({group._under.ask(group._renew)})

        def well() -> pages.Values:
            # On a slow machine an answer may come too late for the time that a call has.
            asyncio.run(renew())
            until(lambda: not group.view.failure, step=lambda: asyncio.run(renew()), what="an answer")
            return asyncio.run(pages.group(reader, {"id": "billing"}))

        before = well()
        broker.stop()
        asyncio.run(renew())
        gone = asyncio.run(pages.group(reader, {"id": "billing"}))
        assert "brokers" in gone["failure"] or "127.0.0.1" in gone["failure"]
        assert gone["rows"] == before["rows"] and gone["offsets"] == before["offsets"]
        broker.start()
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
            admin.alter_group_configs("billing", {"consumer.session.timeout.ms": 50_000})
        after = well()
        reader.close()
    assert after["failure"] == "" and len(after["rows"]) < len(before["rows"])
    assert "50000" in after["rows"][0]["said"]


class Tab:
    """A browser's end of a stream: takes what is sent until it falls asleep."""

    def __init__(self, *, takes: int) -> None:
        self.taken: list[str] = []
        self.arrived = asyncio.Semaphore(0)
        self._takes = takes

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            if len(self.taken) == self._takes:
                await asyncio.Event().wait()
            self.taken.append(message["body"].decode())
            self.arrived.release()

    async def receive(self) -> Any:
        await asyncio.Event().wait()


def test_a_browser_that_sleeps_is_given_up_and_its_rows_are_coalesced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream keeps a cursor and no queue: ten thousand rows that a tab has missed are the latest of them."""
    monkeypatch.setattr(app, "_SEND_SECONDS", 0.05)

    async def sleep_through() -> tuple[Tab, int, int]:
        reader = reader_of("127.0.0.1:1")
        group, tab = reader.group("billing"), Tab(takes=2)
        scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b"group=billing", "headers": []}
        console: Any = SimpleNamespace(streams=0)
        scope["state"] = {"session": SimpleNamespace(reader=reader)}  # type: ignore[assignment]
        monkeypatch.setattr(ClusterReader, "keep_following", lambda _: None)
        stream = asyncio.create_task(EventStream(console)(scope, tab.receive, tab.send))
        await tab.arrived.acquire()
        group.view.told = [Told(sequence=number, time_ms=number, said="x\n\ndata: y") for number in range(1, 10_001)]
        group.changed.note()
        await tab.arrived.acquire()
        group.changed.note()
        await stream
        reader.close()
        return tab, group.watchers, console.streams

    tab, watchers, streams = asyncio.run(sleep_through())
    assert (watchers, streams, len(tab.taken)) == (0, 0, 2)
    events = [line for line in tab.taken[1].split("\n\n") if line]
    assert len(events) == 201 and events[-1].startswith("event: look") and len(tab.taken[1]) < 50_000
    assert events[-2].startswith("id: 10000\nevent: row\ndata: ")
    assert json.loads(events[-2].partition("data: ")[2])["said"] == "x\n\ndata: y"


def test_a_cluster_that_never_answers_is_told() -> None:
    reader = reader_of("127.0.0.1:1", timeout_ms=300)
    asyncio.run(reader.know())
    assert reader.view.snapshot is None and reader.view.failure
    with pytest.raises((pages.PageError, KohortError), match=r"127\.0\.0\.1:1|answered"):
        asyncio.run(pages.group(reader, {"id": "billing"}))
    reader.close()


def test_owners_are_shown_though_the_clock_of_the_broker_is_ahead() -> None:
    """An hour: the picture ends behind what came last, and not at this machine's time."""
    with Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 1)
        broker.clock.advance(3_600)
        reader = reader_of(broker.bootstrap_servers)
        with kohort.Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
            until(consumer.assignment, what="a partition", step=lambda: consumer.poll(0.02))
            found = asyncio.run(pages.group(reader, {"id": "billing"}))
        reader.close()
    (lane,) = found["picture"]["lanes"]
    (span,) = [each for each in lane["spans"] if not each["is_unread"]]
    assert found["picture"]["from_ms"] < span["from_ms"] < found["picture"]["to_ms"]

"""Stock clients while a leader answers one of two partitions with a code, and when it serves that one again.

The tables in docs/explanation/ownership.md are of `play_for`, in requests a second.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka
import pytest

from kohort import Broker
from kohort.broker.apis import fetch, metadata
from kohort.broker.context import BrokerContext
from kohort.broker.fetch import ownership
from kohort.broker.fetch.ownership import OwnershipChange, Sender
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from support.dialogues.broker_wire import RawClient
from support.peers.java_member import JavaMember
from support.waiting import PATIENCE_SECONDS, until

#: By which the leader knows the client.
CLIENT_ID: Final = "stock"
#: The partition that is withheld, and the one beside it.
WITHHELD, OTHER = 0, 1
LEASE_MS: Final = 3_600_000


class Reader(Protocol):
    """A client that reads both partitions."""

    #: Partition -> records.
    read: Counter[int]
    #: What it raised, or told its application of.
    errors: list[str]

    def close(self) -> None:
        """End it."""


class ThreadReader:
    """A client in a thread of its own; `options`: more of it, in its own words."""

    def __init__(self, address: str, options: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.read, self.errors = Counter[int](), list[str]()
        self._address, self._options = address, options
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        raise NotImplementedError


class KafkaPythonReader(ThreadReader):
    """kafka-python, by hand."""

    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._address, client_id=CLIENT_ID, auto_offset_reset="earliest",
            enable_auto_commit=False, **self._options,
        )  # fmt: skip
        consumer.assign([kafka.TopicPartition("t", each) for each in (WITHHELD, OTHER)])
        while not self._is_over.is_set():
            try:
                found = consumer.poll(timeout_ms=100)
            except Exception as error:
                self.errors.append(type(error).__name__)
                continue
            for partition, records in found.items():
                self.read[partition.partition] += len(records)
        consumer.close()


class AiokafkaReader(ThreadReader):
    """aiokafka, by hand."""

    def _run(self) -> None:
        asyncio.run(self._poll())

    async def _poll(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._address, client_id=CLIENT_ID, auto_offset_reset="earliest",
            enable_auto_commit=False, **self._options,
        )  # fmt: skip
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition("t", each) for each in (WITHHELD, OTHER)])
        while not self._is_over.is_set():
            try:
                found = await consumer.getmany(timeout_ms=100)
            except Exception as error:
                self.errors.append(type(error).__name__)
                continue
            for partition, records in found.items():
                self.read[partition.partition] += len(records)
        # Its fetcher may be cancelled between two logins, and hands that on.
        with suppress(asyncio.CancelledError):
            await consumer.stop()


class LibrdkafkaReader(ThreadReader):
    """confluent-kafka, by hand."""

    def _run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._address, "client.id": CLIENT_ID, "group.id": "by-hand", **self._options}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", each, 0) for each in (WITHHELD, OTHER)])
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                self.read[message.partition()] += 1
            else:
                self.errors.append(message.error().name())
        consumer.close()


class JavaReader:
    """Apache Kafka's consumer, as the only member of a group."""

    def __init__(self, address: str, protocol: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        self.read, self.errors = Counter[int](), list[str]()
        config = {"group_protocol": protocol, "client_id": CLIENT_ID, "says_reads": "true", **options}
        self._member = JavaMember(address, group_id=f"java-{protocol}", on_line=self._take, **config)

    def close(self) -> None:
        self._member.close()

    def _take(self, line: str) -> None:
        if line.startswith("read "):
            for each in line.split()[1:]:
                partition, count = each.split(":")
                self.read[int(partition)] += int(count)
        elif line.startswith("error "):
            self.errors.append(line.split()[1].rpartition(".")[2])


READERS: Final[dict[str, Callable[[str], Reader]]] = {
    "kafka-python": KafkaPythonReader,
    "aiokafka": AiokafkaReader,
    "librdkafka": LibrdkafkaReader,
    "Java, classic": lambda address: JavaReader(address, "classic"),
    "Java, consumer": lambda address: JavaReader(address, "consumer"),
}


class Requests(NamedTuple):
    """Requests of the client."""

    fetch: int
    metadata: int


class Stage:
    """A broker in this process with one client, which counts that client's requests."""

    def __init__(self, client: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self._counts = Counter[str]()
        self._context: BrokerContext | None = None
        self._epoch = 0
        for module in (fetch, metadata):
            monkeypatch.setattr(module, "handle", self._counting(module.__name__.rpartition(".")[2], module.handle))
        broker = stack.enter_context(Broker())
        self._producer = stack.enter_context(RawClient(broker.port))
        self._topic_id = TopicId(self._producer.create_topic("t", 2))
        self.sent = 0
        self.reader = READERS[client](broker.bootstrap_servers)
        stack.callback(self.reader.close)
        self.send()
        self.wait(WITHHELD, OTHER)

    def requests(self) -> Requests:
        """Its requests so far."""
        return Requests(self._counts["fetch"], self._counts["metadata"])

    def send(self) -> None:
        """Append a record to each partition."""
        for partition in (WITHHELD, OTHER):
            self._producer.produce("t", b"x", partition=partition)
        self.sent += 1

    def wait(self, *partitions: int) -> None:
        """Wait until the client has read all of these partitions."""

        def is_read() -> bool:
            return all(self.reader.read[each] >= self.sent for each in partitions)

        until(is_read, what=lambda: f"{dict(self.reader.read)} of {self.sent} each", step=lambda: time.sleep(0.002))

    def close(self, refusal: str) -> None:
        """Withhold the one partition."""
        self._epoch += 1
        self._tell(is_open=False, refusal=refusal)

    def open(self) -> None:
        """Serve it again."""
        self._tell(is_open=True, refusal="quiet")

    def _tell(self, *, is_open: bool, refusal: str) -> None:
        change = OwnershipChange(
            group_id="g",
            member_id="m",
            epoch=self._epoch,
            places=((self._topic_id, WITHHELD),),
            is_open=is_open,
            lease_ms=LEASE_MS,
            stock_lease_ms=LEASE_MS,
            sender=Sender("", CLIENT_ID, "/127.0.0.1", is_unique=True),
            enforce="all",
            refusal=refusal,
        )
        context, done = self._context, Future[None]()
        assert context is not None

        def tell() -> None:
            context.ownership.change(change, context.monotonic_ms())
            done.set_result(None)

        context.loop.call_soon_threadsafe(tell)
        done.result(PATIENCE_SECONDS)

    def _counting(self, name: str, handle: Callable[..., Any]) -> Callable[..., Any]:
        def counting(context: BrokerContext, request: Any, message: Any) -> Any:
            self._context = context
            # Clients put something behind the client id for some of their connections.
            if request.client_id.startswith(CLIENT_ID):
                self._counts[name] += 1
            return handle(context, request, message)

        return counting


class Lived(NamedTuple):
    """What a client did in so many rounds, each of one record a partition: while it had both, and one alone."""

    before: Requests
    withheld: Requests
    errors: list[str]


def play_rounds(stage: Stage, refusal: str, rounds: int) -> Lived:
    """Send and wait round by round, then serve the partition again and wait for all of it."""
    marks = [stage.requests()]
    for _ in range(rounds):
        stage.send()
        stage.wait(WITHHELD, OTHER)
    marks.append(stage.requests())
    stage.close(refusal)
    told = stage.reader.read[WITHHELD]
    for _ in range(rounds):
        stage.send()
        stage.wait(OTHER)
    marks.append(stage.requests())
    assert stage.reader.read[WITHHELD] == told, "withheld, and read"
    errors = list(stage.reader.errors)
    stage.open()
    stage.wait(WITHHELD, OTHER)
    before, withheld = (
        Requests(*(late - early for late, early in zip(after, mark, strict=True))) for mark, after in pairwise(marks)
    )
    return Lived(before, withheld, errors)


class Row(NamedTuple):
    """One client and one code: requests a second before and while one partition is withheld, and its way back."""

    before: float
    fetches: float
    metadata: float
    errors: list[str]
    #: How long after it was served again its records came; `None`: they did not, while it was waited for.
    back_s: float | None


def play_for(stage: Stage, seconds: float, *, code: ErrorCode, monkeypatch: pytest.MonkeyPatch) -> Row:
    """Send a record to each partition every 50 ms for that time, as it was, and again with the code."""
    before = _send_for(stage, seconds)
    monkeypatch.setattr(ownership, "STOCK", code)
    stage.close("quiet" if code is ErrorCode.NONE else "strict")
    withheld = _send_for(stage, seconds)
    errors = list(dict.fromkeys(stage.reader.errors))
    stage.open()
    opened_s, first = time.monotonic(), stage.reader.read[WITHHELD]
    while stage.reader.read[WITHHELD] == first and time.monotonic() - opened_s < seconds:
        time.sleep(0.005)
    is_back = stage.reader.read[WITHHELD] > first
    back_s = time.monotonic() - opened_s if is_back else None
    return Row(before.fetch / seconds, withheld.fetch / seconds, withheld.metadata / seconds, errors, back_s)


def _send_for(stage: Stage, seconds: float) -> Requests:
    began_s, mark = time.monotonic(), stage.requests()
    while time.monotonic() - began_s < seconds:
        stage.send()
        time.sleep(0.05)
    now = stage.requests()
    return Requests(now.fetch - mark.fetch, now.metadata - mark.metadata)


def table(rows: Iterable[tuple[str, ErrorCode, Row]]) -> str:
    """The rows as lines of text."""
    lines = [
        f"{client:15} {code.name:28} {row.before:7.1f} {row.fetches:8.1f} {row.metadata:8.1f}  "
        f"{'-' if row.back_s is None else f'{row.back_s:.2f} s':7} {' '.join(row.errors)}"
        for client, code, row in rows
    ]
    head = f"{'client':15} {'code':28} {'before':>7} {'fetches':>8} {'metadata':>8}  {'back':7} errors"
    return "\n".join([head, *lines])

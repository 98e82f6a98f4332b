"""A broker in memory that starts again has forgotten everything: its clients find their way back by themselves.

Source: KIP-848 (UNKNOWN_MEMBER_ID makes a member join anew; GROUP_ID_NOT_FOUND would end Java's client and librdkafka).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Protocol

import confluent_kafka
import pytest

import kohort
from support.peers.restarts import wait_until
from support.ports import quiet_port

pytestmark = pytest.mark.interop

TOPIC = "forgotten"


class Reader(Protocol):
    """A member of a group, of some client."""

    def poll(self) -> list[bytes | None]:
        """The values that came."""
        ...


class OurReader:
    def __init__(self, address: str, protocol: str, stack: ExitStack) -> None:
        self._consumer = stack.enter_context(
            kohort.Consumer(
                bootstrap_servers=address,
                group_id=f"ours-{protocol}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                metadata_max_age_ms=200,
                reconnect_backoff_max_ms=100,
                **({"heartbeat_interval_ms": 200, "session_timeout_ms": 6000} if protocol == "classic" else {}),
            )
        )
        self._consumer.subscribe([TOPIC])

    def poll(self) -> list[bytes | None]:
        return [record.value for record in self._consumer.poll(0.1)]


class TheirReader:
    def __init__(self, address: str, protocol: str, stack: ExitStack) -> None:
        options: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": f"theirs-{protocol}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        if protocol == "classic":
            options |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
        self._consumer = confluent_kafka.Consumer(options)
        stack.callback(self._consumer.close)
        self._consumer.subscribe([TOPIC])

    def poll(self) -> list[bytes | None]:
        return [message.value() for message in self._consumer.consume(100, 0.1) if message.error() is None]


READERS: list[Callable[[str, str, ExitStack], Reader]] = [OurReader, TheirReader]


@pytest.fixture
def start() -> Iterator[Callable[[], kohort.Broker]]:
    """Starts a broker in memory, always on the same port; the one before must be gone."""
    port = quiet_port()
    brokers: list[kohort.Broker] = []

    def start_one() -> kohort.Broker:
        config = {"group.consumer.heartbeat.interval.ms": 200, "group.initial.rebalance.delay.ms": 0}
        brokers.append(kohort.Broker(port=port, process=True, config=config).start())
        return brokers[-1]

    yield start_one
    brokers[-1].stop()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("reader_of", READERS, ids=["ours", "theirs"])
def test_a_member_joins_again_when_its_group_is_forgotten(
    start: Callable[[], kohort.Broker], reader_of: Callable[[str, str, ExitStack], Reader], protocol: str
) -> None:
    broker = start()
    with ExitStack() as stack:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, b"before").result(10)
        reader = reader_of(broker.bootstrap_servers, protocol, stack)
        wait_until(lambda: b"before" in reader.poll(), "the member reads")
        broker.kill()
        broker = start()
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send(TOPIC, b"after").result(10)
        wait_until(lambda: b"after" in reader.poll(), "the member reads on")

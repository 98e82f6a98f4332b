"""A worker on confluent-kafka: bills each order, and sends unreadable ones to a topic of dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer


def run(servers: str, group: str, bill: Callable[[dict[str, Any]], None], *, until: Callable[[], bool]) -> None:
    """Work until `until` says so; an order is committed once it is billed, or in the dead letters."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    consumer.subscribe(["orders"])
    try:
        while not until():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            try:
                bill(json.loads(message.value()))
            except ValueError as why:
                _bury(producer, message, str(why))
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def _bury(producer: Producer, message: Message, why: str) -> None:
    headers = [("why", why.encode()), ("from", f"{message.topic()}-{message.partition()}@{message.offset()}".encode())]
    producer.produce("orders.dead", message.value(), message.key(), headers=headers)
    producer.flush(10)

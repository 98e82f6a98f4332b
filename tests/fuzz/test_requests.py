"""Requests of every API with values that no client would send: the broker answers in the protocol or hangs up.

Laws: no request, whatever it says, reaches code that did not expect it (the broker would log that), stops the broker,
or makes it say something that does not decode; what it creates stays within its limits.
"""

from __future__ import annotations

import logging
import random
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.records.batch import build_batch
from kohort.wire.codec import decode
from kohort.wire.embedded import encode_subscription
from kohort.wire.messages.header import ResponseHeader
from kohort.wire.registry import SERVED, ApiKey, request_class, response_class, response_header_version
from kohort.wire.schema import Array, Kind, Message, Scalar, fields_of, schema_of
from support.raw_client import RawClient, request_frame

SEEDS = 8
REQUESTS = 1500
#: So that members may join with the small numbers that are drawn.
CONFIG = {"group.min.session.timeout.ms": 100}

NAMES = (
    "work",
    "g",
    "classic",
    "member-1",
    "uniform",
    "range",
    "consumer",
    "__consumer_offsets",
    "",
    "no such",
    "ä\x00",
)
NUMBERS = (*(0, 1, -1) * 3, 2, 3, -2, 100, 500, 1 << 15, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63))
BLOBS = (b"", b"\x00", bytes(range(20)), encode_subscription(["work"]))


class Generator:
    """Random messages, with values that something may be known by more often than chance would have it."""

    def __init__(self, seed: int, topic_ids: Sequence[bytes]) -> None:
        self._random = random.Random(seed)
        self._topic_ids = (*topic_ids, bytes(16), bytes(range(16)))

    def message(self, cls: type[Any], version: int) -> Any:
        flexible = schema_of(cls).is_flexible(version)
        return self._struct(cls, version, flexible)

    def _struct(self, cls: type[Any], version: int, flexible: bool) -> Any:
        values: dict[str, Any] = {}
        for each in fields_of(cls):
            if not each.is_in(version) or (each.is_tagged(version) and not flexible):
                continue
            chance = self._random.random()
            if each.is_nullable(version) and chance < 0.25:
                values[each.name] = None
            elif chance < 0.9:
                values[each.name] = self._value(each.kind, version, flexible)
        return cls(**values)

    def _value(self, kind: Kind, version: int, flexible: bool) -> Any:
        if isinstance(kind, Array):
            size = self._random.choice((0, 1, 1, 1, 2, 3))
            return [self._value(kind.element, version, flexible) for _ in range(size)]
        if isinstance(kind, Scalar):
            return self._scalar(kind)
        return self._struct(kind, version, flexible)

    def _scalar(self, kind: Scalar) -> Any:
        choice = self._random.choice
        match kind.name:
            case "bool":
                return choice((True, False))
            case "string":
                return choice(NAMES)
            case "uuid":
                return choice(self._topic_ids)
            case "bytes":
                return choice(BLOBS)
            case "records":
                return choice((*BLOBS, build_batch([(None, b"v", 0, ())])))
            case "float64":
                return 0.5
        unsigned = kind.name.startswith("u")
        bits = kind.size * 8 - (not unsigned)
        number = choice((*NUMBERS, self._random.getrandbits(bits)))
        return min(max(number, 0 if unsigned else -(1 << bits)), (1 << bits) - 1)


def uuid_of(topic_id: str) -> bytes:
    """The raw form of a topic id as Kafka writes it."""
    return urlsafe_b64decode(topic_id + "==")


def ask(client: RawClient, key: ApiKey, version: int, message: Message) -> Message | None:
    """The answer, `None` if the broker hangs up (or waits with its answer, as a fetch may)."""
    client.send(request_frame(message, version))
    client.end_writing()
    try:
        content = client.receive()
    except ConnectionError:
        return None
    header, position = decode(ResponseHeader, response_header_version(key, version), content)
    answer, end = decode(response_class(key), version, content, position)
    assert header.correlation_id == 1
    assert end == len(content)
    assert isinstance(answer, Message)
    return answer


def picture(address: str) -> list[object]:
    """What a restart must not change: topics, KIP-848 groups, and what groups have committed.

    Classic groups before their first generation are not written down, in Kafka either.
    """
    with kohort.Admin(bootstrap_servers=address) as admin:
        groups = admin.list_groups()
        offsets = [(group.group_id, admin.group_offsets(group.group_id)) for group in groups]
        return [
            [(topic.name, topic.partition_count) for topic in admin.list_topics()],
            [group.group_id for group in groups if group.group_type == "consumer"],
            [
                (group, row.topic, row.partition, row.committed)
                for group, rows in offsets
                for row in rows
                if row.committed is not None
            ],
        ]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_request_is_answered_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    """Requests of all APIs in random order, so that they meet what earlier ones have made; then a restart."""
    chance = random.Random(seed)
    keys = list(SERVED)
    with caplog.at_level(logging.ERROR, logger="kohort"), kohort.Broker(data_dir=tmp_path, config=CONFIG) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("work", 3)
            topic_ids = [uuid_of(topic.topic_id) for topic in admin.list_topics()]
        generator = Generator(seed, topic_ids)
        for _ in range(REQUESTS):
            key = chance.choice(keys)
            version = chance.randint(*SERVED[key])
            message = generator.message(request_class(key), version)
            with RawClient(broker.bootstrap_servers) as client:
                ask(client, key, version, message)
            assert not caplog.records, f"{message} in version {version}: {caplog.text}"
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            # Behind all topics that nobody has waited for.
            admin.create_topic("last", 1)
        before = picture(broker.bootstrap_servers)
    with kohort.Broker(data_dir=tmp_path) as broker:
        assert picture(broker.bootstrap_servers) == before

"""Requests of every API with values that no client would send: the broker answers in the protocol or hangs up.

Laws: no request, whatever it says, reaches code that did not expect it (the broker would log that), stops the broker,
or makes it say something that does not decode; what it creates stays within its limits.
"""

from __future__ import annotations

import logging
import random
from base64 import urlsafe_b64decode
from pathlib import Path

import pytest

import kohort
from kohort.wire.codec import decode
from kohort.wire.registry import SERVED, ApiKey, ResponseHeader, request_class, response_class, response_header_version
from kohort.wire.schema import Message
from support.builders.fuzz_messages import Generator
from support.dialogues.raw_client import RawClient, request_frame

SEEDS = 8
REQUESTS = 1500
#: So that members may join with the small numbers that are drawn.
CONFIG = {"group.min.session.timeout.ms": 100}


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
        # Offsets may be committed for a group without a name, as at Apache Kafka; an admin asks nothing about it.
        groups = [group for group in admin.list_groups() if group.group_id]
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
        generator = Generator(random.Random(seed), topic_ids)
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

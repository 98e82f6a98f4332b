"""Quotas beside Apache Kafka 4.3: its throttle times, its answers, its tool on our broker, stock clients that wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort import ClientQuota
from kohort.broker.limits.quota_windows import LONGEST_MS, RateWindow, TokenBucket
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, make
from support.peers.apache_broker import ApacheKafka
from support.peers.cli import run_kohort
from support.peers.kafka_quotas import Story, kafkas_throttle_times
from support.peers.kafka_tools import run_kafka_tool
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

CONFIGS = "kafka.admin.ConfigCommand"
STORIES = 300
#: Kafka's clock: its bucket of tokens is full long after 1970.
EPOCH_MS = 1_700_000_000_000


def story(seed: int) -> Story:
    """A client that is sometimes quiet and sometimes busy, or sends the same again and again."""
    random = Random(seed)
    windows, window_s = random.choice([(11, 1), (11, 1), (2, 1), (1, 1), (5, 3), (30, 1)])
    limit = random.choice([1.0, 10.0, 1_000.0, 1e6, 0.5, 1 / 3])
    now_ms, requests = EPOCH_MS, []
    for _ in range(random.randint(1, 60)):
        now_ms += random.choice([0, 0, 1, 17, 250, 999, 1_000, 1_001, 5_000, random.randint(0, 20_000)])
        amount = limit * random.choice([0.01, 0.5, 1, 3, 20, random.random() * 10])
        requests.append((now_ms, amount if random.random() < 0.9 else -amount))
    return Story(seed % 3 != 0, windows, window_s, limit, requests)


def our_throttle_times(story: Story) -> list[int]:
    sizes = {"windows": story.windows, "window_ms": story.window_s * 1_000}
    found = []
    rate, bucket = RateWindow(**sizes), TokenBucket(**sizes)
    for at_ms, amount in story.requests:
        if story.is_rate:
            rate.record(amount, at_ms)
            found.append(rate.throttle_ms(story.limit, at_ms))
        else:
            bucket.take(amount, story.limit, at_ms)
            found.append(bucket.throttle_ms(story.limit, at_ms))
    return found


def test_throttle_times_are_those_of_kafkas_classes() -> None:
    stories = [story(seed) for seed in range(STORIES)]
    theirs = kafkas_throttle_times(stories)
    assert len(theirs) == STORIES
    assert sum(wait_ms > 0 for waits in theirs for wait_ms in waits) > 1_000
    for each, expected in zip(stories, theirs, strict=True):
        assert our_throttle_times(each) == [min(wait_ms, LONGEST_MS) for wait_ms in expected], each


Parts = dict[str, str | None]
#: Changes one after the other: entities with limits; `None` removes one.
CHANGES: list[tuple[Parts, dict[str, float | None]]] = [
    ({}, {"producer_byte_rate": 5.0}),
    ({"user": "bob"}, {"producer_byte_rate": 5.0, "request_percentage": 0.5}),
    ({"user": None, "client-id": "a/b é"}, {"consumer_byte_rate": 7.0}),
    ({"user": "bob", "client-id": None}, {"controller_mutation_rate": 0.25}),
    ({"client-id": None}, {"request_percentage": 250.0}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": 9.0}),
    ({"ip": None}, {"connection_creation_rate": 1e6}),
    ({"ip": "localhost"}, {"connection_creation_rate": 1e6}),
    ({"ip": "no such host"}, {"connection_creation_rate": 1.0}),
    ({"ip": "127.0.0.1", "client-id": "x"}, {"connection_creation_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 5.0}),
    ({"user": ""}, {"producer_byte_rate": 5.0}),
    ({"user": "bob"}, {"producer_byte_rate": 0.0}),
    ({"user": "bob"}, {"producer_byte_rate": -5.0}),
    ({"user": "bob"}, {"producer_byte_rate": 2.0**63}),
    ({"user": "bob"}, {"producer_byte_rate": 2.0**64}),
    ({"user": "bob"}, {"producer_byte_rate": math.inf}),
    ({"user": "bob"}, {"producer_byte_rate": 1.5}),
    ({"user": "bob"}, {"producer_byte_rate": 1.0000001}),
    ({"user": "bob"}, {"connection_creation_rate": 5.0}),
    ({"user": "bob"}, {"SCRAM-SHA-256": 5.0}),
    ({"ip": "127.0.0.9"}, {"producer_byte_rate": 5.0}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": 2.0**31}),
    ({"ip": "127.0.0.9"}, {"connection_creation_rate": 0.0}),
    ({"user": "bob"}, {"producer_byte_rate": None, "no_such_limit": None}),
    ({"user": "bob"}, {"no_such_limit": None}),
    ({"user": "eve"}, {}),
]
#: Kinds of comparison: 0 exact, 1 the default, 2 any; the last: strict.
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", 0, "bob")], False),
    ([("user", 0, "bob")], True),
    ([("user", 1, None)], False),
    ([("user", 2, None)], True),
    ([("user", 2, None), ("client-id", 2, None)], True),
    ([("ip", 2, None)], False),
    ([("ip", 1, None)], True),
    ([("ip", 0, "127.0.0.9")], True),
    ([("", 0, "a")], False),
    ([("group", 0, "a")], False),
    ([("user", 0, "a"), ("user", 0, "b")], False),
    ([("user", 0, None)], False),
    ([("user", 1, "a")], False),
    ([("user", 2, "a")], False),
    ([("user", 9, None)], False),
    ([("user", 0, "a"), ("ip", 0, "127.0.0.1")], False),
]


def answers_of(port: int) -> Iterator[object]:
    """What a broker says to each change, and to each filter after them."""
    with RawClient(port) as client:
        for parts, limits in CHANGES:
            for validate_only in (True, False):
                entry = {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()],
                    "ops": [
                        {"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()
                    ],
                }
                request = make(ApiKey.ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=validate_only)
                answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
                yield parts, limits, [(row.error_code, row.error_message) for row in answer.entries]
        for components, strict in FILTERS:
            rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
            request = make(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=rows, strict=strict)

            def described(request: Any = request) -> Any:
                return client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)

            if not components and not strict:
                # Kafka's broker hears of the last change a moment after the controller.
                until(lambda: len(described().entries) == 7, what="the quotas are known")
            answer = described()
            found = answer.entries and {
                (
                    frozenset((part.entity_type, part.entity_name) for part in row.entity),
                    frozenset((each.key, each.value) for each in row.values),
                )
                for row in answer.entries
            }
            yield components, strict, answer.error_code, answer.error_message, found or bool(answer.entries is None)


def test_answers_are_those_of_apache_kafka(broker: kohort.Broker) -> None:
    with ApacheKafka() as kafka:
        theirs = list(answers_of(int(kafka.bootstrap_servers.rpartition(":")[2])))
    for ours, expected in zip(answers_of(broker.port), theirs, strict=True):
        assert ours == expected


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker() as broker:
        yield broker


def tool(broker: kohort.Broker, *words: str) -> list[str]:
    said = run_kafka_tool(CONFIGS, "--bootstrap-server", broker.bootstrap_servers, *words)
    return [line.strip() for line in said.splitlines() if line.strip()]


def test_kafka_configs_sets_describes_and_removes_quotas() -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        alter = ("--alter", "--add-config")
        tool(broker, *alter, "producer_byte_rate=1024,consumer_byte_rate=2048", "--entity-type", "users",
             "--entity-name", "bob")  # fmt: skip
        tool(broker, *alter, "request_percentage=12.5", "--entity-type", "clients", "--entity-default")
        tool(broker, *alter, "controller_mutation_rate=5", "--entity-type", "users", "--entity-name", "bob",
             "--entity-type", "clients", "--entity-default")  # fmt: skip
        tool(broker, *alter, "connection_creation_rate=7", "--entity-type", "ips", "--entity-name", "127.0.0.9")
        assert [str(quota) for quota in admin.describe_client_quotas()] == [
            "default client-id: request_percentage=12.5",
            "ip 127.0.0.9: connection_creation_rate=7",
            "user bob: consumer_byte_rate=2048, producer_byte_rate=1024",
            "user bob, default client-id: controller_mutation_rate=5",
        ]
        assert tool(broker, "--describe", "--entity-type", "clients") == [
            "Quota configs for the default client-id are request_percentage=12.5"
        ]
        assert tool(broker, "--describe", "--entity-type", "ips") == [
            "Quota configs for ip '127.0.0.9' are connection_creation_rate=7.0"
        ]
        assert tool(broker, "--describe", "--entity-type", "users", "--entity-type", "clients") == [
            "Quota configs for user-principal 'bob', the default client-id are controller_mutation_rate=5.0"
        ]
        tool(
            broker, "--alter", "--delete-config", "producer_byte_rate", "--entity-type", "users", "--entity-name", "bob"
        )
        (of_bob,) = admin.describe_client_quotas({"user": "bob"}, strict=True)
        assert of_bob.values == {"consumer_byte_rate": 2048.0}


def test_kohort_quota_sets_lists_and_takes_back(broker: kohort.Broker) -> None:
    here = ("-b", broker.bootstrap_servers)
    assert "set: user carol" in run_kohort("quota", "set", "--user", "carol", "producer_byte_rate=5", *here).out
    assert "producer_byte_rate" in run_kohort("quota", "list", "--user", "carol", *here).out
    assert run_kohort("quota", "set", "--user", "carol", "producer_byte_rate=", *here).code == 0
    assert "no limits" in run_kohort("quota", "list", "--user", "carol", *here).out
    assert "quotas" in run_kohort("broker", "status", *here).out


def test_stock_producer_and_consumer_wait_and_lose_nothing() -> None:
    """librdkafka reads the time in the answers, and says so in its statistics."""
    count, size = 60, 5_000
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t")
        limit = {"producer_byte_rate": 25_000.0, "consumer_byte_rate": 25_000.0}
        admin.alter_client_quotas([ClientQuota(entity={"client-id": "slow"}, values=limit)])
        throttled: list[int] = []
        options: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "slow",
            "throttle_cb": lambda event: throttled.append(round(event.throttle_time * 1000)),
        }
        producer = confluent_kafka.Producer({**options, "batch.size": 20_000, "linger.ms": 20})
        delivered: list[object] = []
        for number in range(count):
            producer.produce("t", number.to_bytes(4) + bytes(size), on_delivery=lambda why, _: delivered.append(why))
        producer.flush(60)
        assert delivered == [None] * count
        assert throttled and max(throttled) > 100
        throttled.clear()
        consumer = confluent_kafka.Consumer({**options, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        numbers: list[int] = []

        def has_all() -> bool:
            found = consumer.consume(100, 0.2)
            numbers.extend(int.from_bytes((message.value() or b"")[:4]) for message in found)
            return len(numbers) == count

        until(has_all, what="all records have come")
        consumer.close()
        assert numbers == list(range(count))
        assert throttled
        facts = admin.describe_broker()
        assert int(facts["quotas.throttled.requests"]) > 1
        assert "client-id='slow'" in facts["quotas.throttled.most"]


def test_our_clients_wait_and_lose_nothing() -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t")
        limit = {"producer_byte_rate": 25_000.0, "consumer_byte_rate": 25_000.0}
        admin.alter_client_quotas([ClientQuota(entity={"user": None}, values=limit)])
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=20_000) as producer:
            for number in range(60):
                producer.send("t", number.to_bytes(4) + bytes(5_000))
            producer.flush(60)
        numbers: list[int] = []
        with kohort.Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["t"])

            def has_all() -> bool:
                numbers.extend(int.from_bytes((record.value or b"")[:4]) for record in consumer.poll(0.2))
                return len(numbers) == 60

            until(has_all, what="all records have come")
        assert numbers == list(range(60))
        assert int(admin.describe_broker()["quotas.throttled.requests"]) > 1


def test_our_admin_is_told_what_a_quota_refuses() -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas([ClientQuota(entity={"user": None}, values={"controller_mutation_rate": 2.0})])
        admin.create_topic("first", 30)
        admin.create_topic("second", 1)
        assert {topic.name for topic in admin.list_topics()} >= {"first", "second"}

"""How many topics a broker takes on, and how fast they may come by being asked for."""

from __future__ import annotations

import pytest

from kohort.broker.topics.topic_operations import TopicRate
from kohort.errors import ErrorCode, Refused
from kohort.testing.clock import VirtualClock
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient


def test_topics_that_are_asked_for_come_as_fast_as_a_minute_allows() -> None:
    clock = VirtualClock()
    rate = TopicRate(clock, 3)
    for _ in range(3):
        rate.take()
    for _ in range(2):
        with pytest.raises(Refused, match="more than 3 topics a minute") as refused:
            rate.take()
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
    clock.run_until(clock.now_ms() + 19_999)
    with pytest.raises(Refused):
        rate.take()
    clock.run_until(clock.now_ms() + 1)
    rate.take()
    clock.run_until(clock.now_ms() + 3_600_000)
    for _ in range(3):
        rate.take()
    with pytest.raises(Refused):
        rate.take()


class TestLimits:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        # The coordinator's log has 4 partitions.
        return {"max.topics": 5, "max.partitions": 12, "auto.create.topics.per.minute": 3}

    def create(self, client: RawClient, *topics: tuple[str, int]) -> list[tuple[int, str | None]]:
        rows = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics]
        answer = client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=rows))
        return [(row.error_code, row.error_message) for row in answer.topics]

    def ask_for(self, client: RawClient, *names: str) -> list[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        return [row.error_code for row in client.ask(ApiKey.METADATA, 9, request).topics]

    def test_topics_that_many_ask_for_are_refused_by_name(self, client: RawClient) -> None:
        """What is there, or cannot be, does not count."""
        assert self.ask_for(client, "a", "b", "no such name", "a") == [0, 0, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert self.ask_for(client, "a", "c", "d") == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert self.ask_for(client, "c", "d") == [0, ErrorCode.POLICY_VIOLATION]
        assert self.create(client, ("d", 1)) == [(0, None)], "who creates it may have it"

    def test_topics_and_partitions_have_a_limit(self, client: RawClient) -> None:
        """Those of one request count together."""
        said = self.create(client, ("a", 4), ("b", 5), ("c", 3), ("d", 1), ("e", 1))
        assert [code for code, _ in said] == [0, ErrorCode.POLICY_VIOLATION, 0, 0, ErrorCode.POLICY_VIOLATION]
        assert said[1][1] == "this broker would have 13 partitions; max.partitions allows 12"

        def grow(total: int) -> tuple[int, str | None]:
            rows = [CreatePartitionsTopic(name="d", count=total, assignments=None)]
            (row,) = client.ask(
                ApiKey.CREATE_PARTITIONS, 2, CreatePartitionsRequest(timeout_ms=30_000, topics=rows)
            ).results
            return row.error_code, row.error_message

        assert grow(2)[0] == ErrorCode.POLICY_VIOLATION
        assert self.create(client, ("f", 1))[0] == (
            ErrorCode.POLICY_VIOLATION,
            "this broker would have 13 partitions; max.partitions allows 12",
        )

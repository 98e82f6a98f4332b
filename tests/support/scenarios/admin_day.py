"""What an administrator does with a group's offsets and members in a day, at any broker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import kohort
from kohort.errors import BrokerError, ConfigError, ErrorCode, GroupNotEmptyError, UnknownTopicError


def play_day(servers: dict[str, Any], topic: str, *, admin_of: Callable[..., Any] = kohort.Admin) -> None:
    """Reset in every way, evict, forget; `topic` is new and names the group as well."""
    first, second = (kohort.TopicPartition(topic, number) for number in range(2))
    with admin_of(**servers) as admin:
        admin.create_topic(topic, 2)
        with kohort.Producer(**servers) as producer:
            for number in range(10):
                producer.send(topic, str(number), partition=number % 2)
        admin.alter_group_offsets(topic, {first: kohort.OffsetAndMetadata(3, "by hand"), second: 5})

        def new(to: Any = None, **more: Any) -> list[tuple[int | None, int]]:
            return [(row.committed, row.offset) for row in admin.reset_offsets(topic, to, **more)]

        assert new("earliest") == [(3, 0), (5, 0)]
        assert new("latest", of=[topic]) == [(3, 5), (5, 5)]
        assert new("current", of=[second]) == [(5, 5)]
        assert new(4) == [(3, 4), (5, 4)]
        assert new(shift_by=-4) == [(3, 0), (5, 1)]
        assert new(shift_by=9) == [(3, 5), (5, 5)]
        assert new(timedelta(hours=1)) == [(3, 0), (5, 0)]
        assert new(datetime(2100, 1, 1, tzinfo=UTC)) == [(3, 5), (5, 5)]
        assert new({first: 1}) == [(3, 1)]
        assert new("current") == [(3, 3), (5, 5)], "nothing was changed so far"
        assert new({first: 1, second: 99}, execute=True) == [(3, 1), (5, 5)]
        assert new("current") == [(1, 1), (5, 5)]
        _refuse_what_cannot_be(admin, topic)
        _tell_what_may_be_done(admin, topic)

        with kohort.Consumer(**servers, group_id=topic, client_id="worker", group_instance_id="one") as consumer:
            consumer.subscribe([topic])
            while len(consumer.assignment()) < 2:
                consumer.poll(0.2)
            _refuse_beside_members(admin, topic, first)
            member = consumer.member_id
            assert admin.remove_members(topic, ["one"], reason="test") == [member]
            assert admin.remove_members(topic) == []
        admin.delete_group_offsets(topic, [first])
        assert new("current") == [(5, 5)]


def _refuse_what_cannot_be(admin: kohort.Admin, topic: str) -> None:
    with pytest.raises(UnknownTopicError, match="has no partition 7"):
        admin.reset_offsets(topic, "earliest", of=[kohort.TopicPartition(topic, 7)])
    with pytest.raises(UnknownTopicError):
        admin.reset_offsets(topic, "earliest", of=[f"{topic}-not-there"])
    with pytest.raises(ConfigError, match="has committed nothing"):
        admin.reset_offsets(f"{topic}-nobody", "earliest")
    with pytest.raises(BrokerError) as missing:
        admin.remove_members(f"{topic}-nobody")
    assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def _tell_what_may_be_done(admin: Any, topic: str) -> None:
    """Everything, where nobody says otherwise (KIP-430)."""
    configs = ("describe_configs", "alter_configs")
    (described,) = admin.describe_topics([topic], include_authorized_operations=True)
    assert described.authorized_operations == ("read", "write", "create", "delete", "alter", "describe", *configs)
    group = admin.describe_group(topic, include_authorized_operations=True)
    assert group.authorized_operations == ("read", "delete", "describe", *configs)
    assert admin.describe_topics([topic])[0].authorized_operations is None
    assert admin.describe_group(topic).authorized_operations is None


def _refuse_beside_members(admin: kohort.Admin, topic: str, partition: kohort.TopicPartition) -> None:
    with pytest.raises(GroupNotEmptyError, match=r"1 member \(worker\): stop them first"):
        admin.reset_offsets(topic, "earliest", execute=True)
    with pytest.raises(GroupNotEmptyError):
        admin.alter_group_offsets(topic, {partition: 0})
    with pytest.raises(BrokerError) as read:
        admin.delete_group_offsets(topic, [partition])
    assert read.value.code is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    with pytest.raises(BrokerError, match="has no member two"):
        admin.remove_members(topic, ["two"])

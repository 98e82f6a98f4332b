"""Many groups that have committed and have no members, at any broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

import kohort
from kohort.errors import ErrorCode, GroupNotEmptyError, KohortError, PartlyDoneError

PARTITIONS = 3


def play_many_groups(
    servers: Mapping[str, Any],
    topic: str,
    *,
    count: int,
    disturb: Callable[[], None],
    admin_of: Callable[..., Any] = kohort.Admin,
) -> None:
    """Commit, look, look again after `disturb`, delete; `topic` is new, and its name begins those of the groups."""
    groups = [f"{topic}-{number:04}" for number in range(count)]
    partitions = [kohort.TopicPartition(topic, number) for number in range(PARTITIONS)]
    with admin_of(**servers) as admin:
        admin.create_topic(topic, PARTITIONS)
        for number, group in enumerate(groups):
            kept = [kohort.OffsetAndMetadata(0, f"{number}") for _ in partitions]
            admin.alter_group_offsets(group, dict(zip(partitions, kept, strict=True)))
        with kohort.Producer(**servers) as producer:
            producer.send(topic, "x", partition=0).result(30)
        _look(admin, groups, partitions)
        disturb()
        _look(admin, groups, partitions)
        missing = f"{topic}-missing"
        with pytest.raises(PartlyDoneError) as why:
            admin.delete_groups([groups[0], missing, *groups[2:]])
        assert list(why.value.done) == [groups[0], *groups[2:]]
        assert [error.code for error in why.value.failed.values()] == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert [row.group_id for row in admin.list_groups() if row.group_id in groups] == groups[1:2]
        _refuse_beside_members(admin, servers, groups[1], topic)


def _look(admin: kohort.Admin, groups: list[str], partitions: list[kohort.TopicPartition]) -> None:
    missing = f"{groups[0]}-missing"
    committed = admin.list_group_offsets([*groups, missing])
    assert committed.pop(missing) == {}
    assert list(committed) == groups
    for number, (group, found) in enumerate(committed.items()):
        assert not isinstance(found, KohortError), group
        assert {each: (kept.offset, kept.metadata) for each, kept in found.items()} == dict.fromkeys(
            partitions, (0, str(number))
        )
    described = admin.describe_groups([*groups, missing])
    error = described.pop(missing)
    assert isinstance(error, kohort.errors.BrokerError)
    assert error.message == f"there is no group {missing}"
    assert {each.state for each in described.values() if not isinstance(each, KohortError)} == {"Empty"}
    stands = admin.groups_offsets(groups)
    assert all([row.lag for row in rows] == [1, 0, 0] for rows in stands.values() if not isinstance(rows, KohortError))
    assert list(stands) == groups
    shown = {row.group_id: (row.members, row.lag) for row in admin.summarize_groups()}
    assert {group: shown[group] for group in groups} == dict.fromkeys(groups, (0, 1))


def _refuse_beside_members(admin: kohort.Admin, servers: Mapping[str, Any], group: str, topic: str) -> None:
    with kohort.Consumer(topic, **servers, group_id=group) as consumer:
        while not consumer.assignment():
            consumer.poll(0.2)
        with pytest.raises(KohortError, match="stop them first"):
            admin.delete_groups([group])
        with pytest.raises(GroupNotEmptyError):
            admin.alter_group_offsets(group, {kohort.TopicPartition(topic, 0): 0})
        (rows,) = admin.groups_offsets([group]).values()
        assert isinstance(rows, list)
        assert {row.member_id for row in rows} == {consumer.member_id}

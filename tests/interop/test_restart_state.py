"""Kill -9 after every kind of change that a group's log keeps, seen on the wire: all is as it was acknowledged.

Static names, those that are away included, patterns and what they were resolved to, epochs, targets, assignments in the
middle of a rebalance, configs of the group, committed offsets and those of an open transaction.
Source: requirement G1; KIP-848, KIP-345, KIP-447, KIP-1043 (configs of groups).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.errors import ErrorCode
from kohort.wire.messages import offset_fetch
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.restarts import MortalBroker, wait_until

pytestmark = pytest.mark.interop

CONFIG = {"group.consumer.assignment.window.ms": 0}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MortalBroker]:
    with MortalBroker(tmp_path / "data", CONFIG) as broker:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            for name in ("clicks", "views"):
                admin.create_topic(name, 4)
        yield broker


class Talk:
    """Members of group g that speak bytes, each with what it was told last."""

    def __init__(self, broker: MortalBroker) -> None:
        self._broker = broker
        self._connections = ExitStack()
        self._client: RawClient | None = None
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, list[Any]] = {}

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        if self._client is None:
            self._client = self._connections.enter_context(RawClient(int(self._broker.address.rsplit(":", 1)[1])))
        return self._client.ask(key, version, request)

    def kill_and_revive(self) -> None:
        self._connections.close()
        self._client = None
        self._broker.kill()
        self._broker.revive()

    def close(self) -> None:
        self._connections.close()

    def heartbeat(self, member_id: str, epoch: int | None = None, **fields: Any) -> Any:
        said = self.epochs.get(member_id, 0) if epoch is None else epoch
        if said == 0:
            fields = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **fields}
        answer = self.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=said, **fields),
        )
        assert answer.error_code == ErrorCode.NONE, answer
        self.epochs[member_id] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[member_id] = answer.assignment.topic_partitions
        return answer

    def settle(self, *members: str) -> None:
        """Let them take, and give up, what they are told."""

        def nothing_new() -> bool:
            answers = [self.heartbeat(each, topic_partitions=self.owned.get(each, [])) for each in members]
            is_told = all(
                answer.assignment is None or answer.assignment.topic_partitions == self.owned[each]
                for answer, each in zip(answers, members, strict=True)
            )
            return is_told and self.described().group_state == "Stable"

        wait_until(nothing_new, "the group is at rest")

    def described(self) -> Any:
        (group,) = self.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
        return group

    def offsets(self, *, stable: bool) -> list[tuple[str, int, int, str | None, int]]:
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)
        (found,) = self.ask(ApiKey.OFFSET_FETCH, 9, request).groups
        return sorted(
            (topic.name, row.partition_index, row.committed_offset, row.metadata, row.error_code)
            for topic in found.topics
            for row in topic.partitions
        )

    def told(self) -> list[Any]:
        """All that the broker says of the group."""
        with kohort.Admin(bootstrap_servers=self._broker.address) as admin:
            configs = admin.describe_group_configs("g")
        return [self.described(), self.offsets(stable=False), self.offsets(stable=True), configs]


def commit(talk: Talk, member_id: str, offset: int) -> None:
    row = talk.owned[member_id][0]
    name = {
        topic.topic_id: topic.topic_name
        for each in talk.described().members
        for topic in each.assignment.topic_partitions
    }[row.topic_id]
    partition = OffsetCommitRequestPartition(
        partition_index=row.partitions[0], committed_offset=offset, committed_metadata=f"by {member_id}"
    )
    answer = talk.ask(
        ApiKey.OFFSET_COMMIT,
        9,
        OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=talk.epochs[member_id],
            topics=[OffsetCommitRequestTopic(name=name, partitions=[partition])],
        ),
    )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE, answer


def write_aside(broker: MortalBroker, talk: Talk) -> None:
    """What has nothing to do with membership."""
    for number, member_id in enumerate("abc"):
        commit(talk, member_id, number)
    with kohort.Admin(bootstrap_servers=broker.address) as admin:
        admin.alter_group_configs("g", {"consumer.session.timeout.ms": 50_000})


def test_every_change_outlives_a_kill(broker: MortalBroker) -> None:
    talk = Talk(broker)
    changes = {
        "a static member joins": lambda: talk.heartbeat("a", instance_id="one", subscribed_topic_names=["clicks"]),
        "one with a pattern joins": lambda: talk.heartbeat(
            "b", instance_id="two", subscribed_topic_regex="cl.*|vi.*", server_assignor="uniform", rack_id="r"
        ),
        "a dynamic one joins": lambda: talk.heartbeat("c", subscribed_topic_names=["clicks", "views"]),
        "they share": lambda: talk.settle("a", "b", "c"),
        "offsets, configs": lambda: write_aside(broker, talk),
        "one changes its mind": lambda: talk.heartbeat("c", subscribed_topic_names=["views"]),
        "a rebalance is half over": lambda: talk.heartbeat("b", topic_partitions=talk.owned["b"]),
        "they share again": lambda: talk.settle("a", "b", "c"),
        "a static one is away": lambda: talk.heartbeat("b", epoch=-2, instance_id="two"),
        "its successor comes": lambda: talk.heartbeat(
            "d", instance_id="two", subscribed_topic_regex="cl.*|vi.*", server_assignor="uniform", rack_id="r"
        ),
        "the dynamic one leaves": lambda: talk.heartbeat("c", epoch=-1),
        "the rest shares": lambda: talk.settle("a", "d"),
    }
    for what, change in changes.items():
        change()
        before = talk.told()
        talk.kill_and_revive()
        assert talk.told() == before, what
    described = talk.described()
    assert [(each.member_id, each.instance_id) for each in described.members] == [("a", "one"), ("d", "two")]
    epochs = dict(talk.epochs)
    for member_id in ("a", "d"):
        assert talk.heartbeat(member_id).assignment is None, "nobody is given anything anew"
    assert talk.epochs == epochs
    with kohort.Admin(bootstrap_servers=broker.address) as admin:
        told = [event.event for event in admin.group_history("g").events]
        # What was told a moment before the crash may not have been written yet: then it is told as it was found.
        assert told[-1:] in ([], ["broker_started"], ["group_found"]), "in this life nothing has changed"
    talk.close()

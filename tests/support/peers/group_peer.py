"""A broker that is asked about groups, ours or Apache Kafka's: what it answers in words that can be compared.

Ids that a broker makes up are replaced by what the test calls them, and epochs are counted from the first that a group
answered, so that two brokers can say the same. What a member says of its epoch: `NOW`, the latest that it was told;
`BEFORE`, the one before that; `AHEAD`, one that nobody told it; or a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from kohort.errors import ErrorCode
from kohort.wire.codec import decode
from kohort.wire.embedded import decode_assignment, encode_assignment, encode_subscription
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_groups import DeleteGroupsRequest
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kohort.wire.registry import ApiKey, ResponseHeader, response_class, response_header_version
from kohort.wire.schema import Message
from support.dialogues.raw_client import RawClient, request_frame
from support.waiting import until

#: A coordinator that is not ready yet says one of these.
NOT_READY = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")

#: See above.
NOW, BEFORE, AHEAD = "now", "before", "ahead"
When = int | str


class GroupPeer:
    """A broker with a few topics.

    Args:
        address: HOST:PORT.
        topics: name -> number of partitions.
    """

    def __init__(self, address: str, topics: Mapping[str, int]) -> None:
        self._address = address
        self._connections = ExitStack()
        self._admin = self._connect()
        self._parked: dict[str, tuple[RawClient, ApiKey, int]] = {}
        self._names: dict[bytes, str] = {}
        #: What the test calls a member -> the id that the broker made.
        self.ids: dict[str, str] = {}
        #: (group, member) -> the epochs or generations that it was told, each once.
        self._told: dict[tuple[str, str], list[int]] = {}
        #: group -> what is taken from its epochs when they are shown.
        self._bases: dict[str, int] = {}
        for name, count in topics.items():
            row = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            made: Any = self._admin.ask(CreateTopicsRequest(topics=[row]), 7)
            assert made.topics[0].error_code == 0, made
            self._names[made.topics[0].topic_id] = name
        self.wait_for_coordinator()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connections.close()

    def wait_for_coordinator(self) -> None:
        """Apache Kafka makes its `__consumer_offsets` when it is first asked for."""
        codes: list[object] = []

        def look() -> None:
            self._ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["probe"]), 4)
            codes.append(self.fetch("probe"))

        until(lambda: bool(codes) and codes[-1] not in NOT_READY, what="the coordinator is there", step=look)

    # ---- the consumer protocol

    def beat(self, group: str, member: str, when: When = NOW, *, version: int = 1, **fields: Any) -> object:
        """A heartbeat; one with epoch 0 subscribes to "t" and owns nothing unless told otherwise."""
        epoch = self._epoch(group, member, when)
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "owned": {}, **fields}
        owned = fields.pop("owned", None)
        rows = None if owned is None else self._rows(owned)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, topic_partitions=rows, **fields
        )
        answer: Any = self._admin.ask(request, version)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        epoch = self._tell(group, member, answer.member_epoch)
        if answer.assignment is None:
            return epoch
        return epoch, self._named(answer.assignment.topic_partitions)

    def describe(self, group: str) -> object:
        """State, epochs and members of a KIP-848 group."""
        (row,) = self._ask(ConsumerGroupDescribeRequest(group_ids=[group]), 1).groups
        if row.error_code:
            return ErrorCode(row.error_code).name
        members = {
            self._called(member.member_id): (
                self._shown(group, member.member_epoch),
                member.instance_id,
                member.rack_id,
                tuple(member.subscribed_topic_names),
                member.subscribed_topic_regex or None,
                self._named(member.assignment.topic_partitions),
                self._named(member.target_assignment.topic_partitions),
                member.member_type,
            )
            for member in row.members
        }
        epochs = self._shown(group, row.group_epoch), self._shown(group, row.assignment_epoch)
        return row.group_state, *epochs, row.assignor_name, members

    # ---- the classic protocol

    def join(self, group: str, member: str, **fields: Any) -> object:
        """A JoinGroup; `member` is what the test calls the member, its id is made by the broker.

        `is_parked`: go on without waiting for the answer, which `joined` reads.
        """
        version = fields.pop("version", 9)
        is_parked = fields.pop("is_parked", False)
        protocols = fields.pop("protocols", {"range": encode_subscription(fields.pop("topics", ["t"]))})
        request = JoinGroupRequest(
            group_id=group,
            member_id=fields.pop("member_id", self.ids.get(member, "")),
            session_timeout_ms=fields.pop("session_timeout_ms", 30_000),
            rebalance_timeout_ms=fields.pop("rebalance_timeout_ms", 60_000),
            protocol_type=fields.pop("protocol_type", "consumer"),
            group_instance_id=fields.pop("instance_id", None),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=blob) for name, blob in protocols.items()],
            **fields,
        )
        self._send(member, ApiKey.JOIN_GROUP, request, version)
        if not is_parked:
            return self.joined(group, member)
        self._wait_for_member(group, self.ids[member])
        return None

    def joined(self, group: str, member: str) -> object:
        """The answer to the JoinGroup that a member waits for."""
        answer = self._receive(member)
        if answer.member_id:
            self.ids[member] = answer.member_id
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        members = sorted(self._called(row.member_id) for row in answer.members)
        generation = self._tell(group, member, answer.generation_id)
        return generation, answer.protocol_name, self._called(answer.leader), members, answer.skip_assignment

    def sync(self, group: str, member: str, when: When = NOW, **fields: Any) -> object:
        """A SyncGroup; `shares`: what the test calls a member -> its partitions of "t"."""
        is_parked = fields.pop("is_parked", False)
        shares = fields.pop("shares", {})
        rows = [
            SyncGroupRequestAssignment(member_id=self.ids.get(name, name), assignment=encode_assignment({"t": share}))
            for name, share in shares.items()
        ]
        request = SyncGroupRequest(
            group_id=group,
            generation_id=self._epoch(group, member, when),
            member_id=fields.pop("member_id", self.ids.get(member, member)),
            group_instance_id=fields.pop("instance_id", None),
            protocol_type=fields.pop("protocol_type", "consumer"),
            protocol_name=fields.pop("protocol_name", "range"),
            assignments=rows,
        )
        self._send(member, ApiKey.SYNC_GROUP, request, fields.pop("version", 5))
        return None if is_parked else self.synced(member)

    def synced(self, member: str) -> object:
        """The answer to the SyncGroup that a member waits for."""
        answer = self._receive(member)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        if not answer.assignment:
            return {}
        found = decode_assignment(bytes(answer.assignment))
        return {name: tuple(partitions) for name, partitions in found.partitions.items()}

    def classic_beat(self, group: str, member: str, when: When = NOW, instance_id: str | None = None) -> str:
        """A classic heartbeat."""
        request = HeartbeatRequest(
            group_id=group,
            generation_id=self._epoch(group, member, when),
            member_id=self.ids.get(member, member),
            group_instance_id=instance_id,
        )
        return ErrorCode(self._ask(request, 4).error_code).name

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> object:
        """A LeaveGroup: (what the test calls a member, or its id; its instance id) each."""
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=self.ids.get(members[0][0], members[0][0]))
            return ErrorCode(self._ask(request, version).error_code).name
        rows = [
            MemberIdentity(member_id=self.ids.get(name, name), group_instance_id=instance_id)
            for name, instance_id in members
        ]
        answer = self._ask(LeaveGroupRequest(group_id=group, members=rows), version)
        return ErrorCode(answer.error_code).name, [ErrorCode(row.error_code).name for row in answer.members]

    def describe_classic(self, group: str, *, version: int = 6) -> object:
        """State, protocol and members of a classic group."""
        (row,) = self._ask(DescribeGroupsRequest(groups=[group]), version).groups
        members = {
            self._called(member.member_id): (
                member.group_instance_id,
                bool(member.member_metadata),
                bool(member.member_assignment),
            )
            for member in row.members
        }
        return ErrorCode(row.error_code).name, row.group_state, row.protocol_type, row.protocol_data, members

    # ---- offsets and administration

    def commit(self, group: str, member: str, when: When, *places: tuple[str, int], **fields: Any) -> object:
        """An OffsetCommit of offset 5; one code, or one per partition, in the order of the request."""
        metadata, version = fields.pop("metadata", "m"), fields.pop("version", 9)
        ids = {name: topic_id for topic_id, name in self._names.items()}
        rows = [
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids.get(topic, b"\x07" * 16),
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=5, committed_metadata=metadata
                    )
                ],
            )
            for topic, partition in places or (("t", 0),)
        ]
        request = OffsetCommitRequest(
            group_id=group,
            member_id=self.ids.get(member, member),
            generation_id_or_member_epoch=self._epoch(group, member, when),
            group_instance_id=fields.pop("instance_id", None),
            topics=rows,
        )
        answer = self._ask(request, version)
        codes = {
            (self._names.get(row.topic_id, "none") if version >= 10 else row.name, cell.partition_index): ErrorCode(
                cell.error_code
            ).name
            for row in answer.topics
            for cell in row.partitions
        }
        return [codes[place] for place in places] if places else codes["t", 0]

    def fetch(
        self,
        group: str,
        member: str | None = None,
        when: When = -1,
        places: Sequence[tuple[str, int]] | None = (("t", 0),),
        *,
        version: int = 9,
    ) -> object:
        """An OffsetFetch; `places` `None` asks for everything."""
        ids = {name: topic_id for topic_id, name in self._names.items()}
        rows = places and [
            OffsetFetchRequestTopics(name=topic, topic_id=ids.get(topic, b"\x07" * 16), partition_indexes=[partition])
            for topic, partition in places
        ]
        group_row = OffsetFetchRequestGroup(
            group_id=group,
            member_id=None if member is None else self.ids.get(member, member),
            member_epoch=self._epoch(group, member or "", when),
            topics=rows if places is None else list(rows or ()),
        )
        (found,) = self._ask(OffsetFetchRequest(groups=[group_row]), version).groups
        if found.error_code:
            return ErrorCode(found.error_code).name
        return sorted(
            (row.name or self._names.get(row.topic_id, "?"), cell.partition_index, cell.committed_offset, cell.metadata)
            if not cell.error_code
            else (row.name or self._names.get(row.topic_id, "?"), ErrorCode(cell.error_code).name)
            for row in found.topics
            for cell in row.partitions
        )

    def delete_offsets(self, group: str, *places: tuple[str, int]) -> object:
        """An OffsetDelete."""
        rows = [
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
            for topic, partition in places
        ]
        answer = self._ask(OffsetDeleteRequest(group_id=group, topics=rows), 0)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        codes = {(row.name, cell.partition_index): cell.error_code for row in answer.topics for cell in row.partitions}
        return [ErrorCode(codes[place]).name for place in places]

    def delete(self, *groups: str) -> list[str]:
        """A DeleteGroups."""
        answer = self._ask(DeleteGroupsRequest(groups_names=list(groups)), 2)
        by_name = {row.group_id: ErrorCode(row.error_code).name for row in answer.results}
        return [by_name[group] for group in groups]

    def listed(self, prefix: str, *, states: Iterable[str] = (), types: Iterable[str] = ()) -> object:
        """Rows of ListGroups of groups whose names begin with `prefix`."""
        answer = self._ask(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), 5)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return sorted(
            (row.group_id, row.protocol_type, row.group_state, row.group_type)
            for row in answer.groups
            if row.group_id.startswith(prefix)
        )

    # ---- epochs

    def _epoch(self, group: str, member: str, when: When) -> int:
        if isinstance(when, int):
            return when
        told = self._told.get((group, member), [1])
        return {NOW: told[-1], AHEAD: told[-1] + 1, BEFORE: told[-2] if len(told) > 1 else 0}[when]

    def _tell(self, group: str, member: str, epoch: int) -> int:
        if epoch > 0:
            told = self._told.setdefault((group, member), [])
            if told[-1:] != [epoch]:
                told.append(epoch)
            self._bases.setdefault(group, epoch - 1)
        return self._shown(group, epoch)

    def _shown(self, group: str, epoch: int) -> int:
        return epoch - self._bases.get(group, 0) if epoch > 0 else epoch

    # ---- the wire

    def _connect(self) -> RawClient:
        client = RawClient(self._address)
        self._connections.callback(client.close)
        return client

    def _ask(self, message: Message, version: int) -> Any:
        return self._admin.ask(message, version)

    def _send(self, member: str, key: ApiKey, message: Message, version: int) -> None:
        """Over a connection of its own, so that nothing waits behind what is parked."""
        client = self._connect()
        client.send(request_frame(message, version))
        self._parked[member] = (client, key, version)

    def _receive(self, member: str) -> Any:
        client, key, version = self._parked.pop(member)
        content = client.receive()
        client.close()
        _, position = decode(ResponseHeader, response_header_version(key, version), content)
        answer, _ = decode(response_class(key), version, content, position)
        return answer

    def _rows(self, owned: Mapping[str, Sequence[int]]) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [TopicPartitions(topic_id=ids[name], partitions=list(found)) for name, found in owned.items()]

    def _named(self, rows: Iterable[Any]) -> dict[str, tuple[int, ...]]:
        return {self._names[row.topic_id]: tuple(sorted(row.partitions)) for row in rows}

    def _wait_for_member(self, group: str, member_id: str) -> None:
        seen: set[str] = set()

        def look() -> None:
            (row,) = self._ask(DescribeGroupsRequest(groups=[group]), 6).groups
            seen.update(member.member_id for member in row.members)

        until(lambda: member_id in seen, what="the member's join has arrived", step=look)

    def _called(self, member_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == member_id), member_id)

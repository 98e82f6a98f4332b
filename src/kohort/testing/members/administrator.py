"""An administrator, which sends requests about groups as no member of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.coordinator.commands import admin as asked
from kohort.coordinator.commands import groups as groups_commands
from kohort.coordinator.commands.base import GroupCommand
from kohort.coordinator.commands.groups import LeavingMember
from kohort.coordinator.commands.offsets import CommitOffsets, OffsetToCommit
from kohort.coordinator.commands.replies import ReplyBody
from kohort.ids import ZERO_TOPIC_ID
from kohort.testing.members.process import NO_CAUSE, NO_REQUEST
from kohort.testing.network import Connection

if TYPE_CHECKING:
    from kohort.testing.world import World


class Administrator:
    """An administrator that sends one request after the other."""

    name = "admin"

    def __init__(self, world: World) -> None:
        self._world = world
        self._connection: Connection | None = None
        #: The member to be removed, by each of its requests.
        self._removals: list[tuple[LeavingMember, ...]] = []

    def has_asked(self, command: groups_commands.LeaveGroup) -> bool:
        """Whether the administrator has sent a request; the broker has numbered it since."""
        return any(command.members is members for members in self._removals)

    def on_reply(self, connection: Connection, body: ReplyBody, place: int) -> None:
        """Ignore a reply: the story has it already."""

    def on_broken(self, connection: Connection) -> None:
        """Drop the connection; the next request opens another one."""
        self._connection = None

    def delete_offsets(self, group_id: str, partitions: tuple[tuple[str, int], ...]) -> None:
        """Send OffsetDelete."""
        self._ask(asked.DeleteOffsets(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, partitions=partitions))

    def delete_group(self, group_id: str) -> None:
        """Send DeleteGroups."""
        self._ask(asked.DeleteGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))

    def remove_member(self, group_id: str, *, member_id: str, instance_id: str | None) -> None:
        """Send LeaveGroup in the name of a member."""
        leaving = LeavingMember(member_id=member_id, instance_id=instance_id)
        self._removals.append((leaving,))
        self._ask(
            groups_commands.LeaveGroup(
                cause=NO_CAUSE,
                request=NO_REQUEST,
                group_id=group_id,
                members=self._removals[-1],
                client_id=self.name,
            )
        )

    def alter_configs(self, group_id: str, changes: dict[str, str | None]) -> None:
        """Send IncrementalAlterConfigs of a group."""
        self._ask(asked.AlterGroupConfigs(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, changes=changes))

    def submit_moves(self, group_id: str, moves: list[tuple[str, int, str]]) -> None:
        """Submit moves of partitions to members: topic, partition and member id of each."""
        wanted = tuple(asked.AskedMove(topic=topic, partition=each, to_member_id=to) for topic, each, to in moves)
        self._ask(asked.SubmitMoves(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id, moves=wanted))

    def reset_offset(self, group_id: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset without a member, as tools do; only a group without members accepts it."""
        wanted = OffsetToCommit(topic=topic, topic_id=ZERO_TOPIC_ID, partition=partition, offset=offset)
        self._ask(
            CommitOffsets(
                cause=NO_CAUSE,
                request=NO_REQUEST,
                group_id=group_id,
                member_id="",
                generation_or_member_epoch=-1,
                offsets=(wanted,),
            )
        )

    def describe(self, group_id: str) -> None:
        """Describe a group by every API: ConsumerGroupDescribe, DescribeGroups, and the moves under way."""
        self._ask(asked.DescribeMoves(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))
        self._ask(asked.DescribeConsumerGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))
        self._ask(asked.DescribeClassicGroup(cause=NO_CAUSE, request=NO_REQUEST, group_id=group_id))

    def _ask(self, command: GroupCommand) -> None:
        if self._connection is None or not self._connection.is_open:
            self._connection = self._world.network.connect(self)
        if self._connection is not None:
            self._world.story.tell(self.name, "asks", command, group_id=command.group_id)
            self._connection.send(command)

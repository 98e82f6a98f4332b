"""Type of every reply to a command."""

from __future__ import annotations

from kohort.coordinator.commands.admin import (
    DeleteOffsetsReply,
    DescribeClassicGroupReply,
    DescribeConsumerGroupReply,
    DescribeGroupConfigsReply,
    DescribeMovesReply,
    ListGroupConfigsReply,
    ListGroupsReply,
    SubmitMovesReply,
)
from kohort.coordinator.commands.assignors import InstallAssignmentReply, PrepareAssignmentReply
from kohort.coordinator.commands.base import Done, Refusal
from kohort.coordinator.commands.groups import (
    ConsumerGroupHeartbeatReply,
    JoinGroupReply,
    LeaveGroupReply,
    SyncGroupReply,
)
from kohort.coordinator.commands.offsets import CommitOffsetsReply, ExpireOffsetsReply, FetchOffsetsReply

ReplyBody = (
    ConsumerGroupHeartbeatReply
    | JoinGroupReply
    | SyncGroupReply
    | LeaveGroupReply
    | CommitOffsetsReply
    | FetchOffsetsReply
    | DeleteOffsetsReply
    | ExpireOffsetsReply
    | ListGroupsReply
    | DescribeClassicGroupReply
    | DescribeConsumerGroupReply
    | DescribeGroupConfigsReply
    | ListGroupConfigsReply
    | SubmitMovesReply
    | DescribeMovesReply
    | PrepareAssignmentReply
    | InstallAssignmentReply
    | Done
    | Refusal
)

"""ConsumerGroupPrepareAssignment (key 10005): the input of an assignment that a member computes.

Served to kohort's clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.assign.interface import Assignable
from kohort.broker.chunked_responses import GROUP_DENIED
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import consumer_group_prepare_assignment as wire


def handle(context: BrokerContext, request: Request, message: wire.ConsumerGroupPrepareAssignmentRequest) -> None:
    """Ask the group's coordinator."""
    if not request.rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.answer(_translate(request, GROUP_DENIED))
        return
    token = context.runtime.next_token()
    command = commands.PrepareAssignment(
        cause=token,
        request=token,
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
    )
    context.runtime.answer(request, command, _translate)


def _translate(
    request: Request, body: commands.PrepareAssignmentReply | commands.Refusal
) -> wire.ConsumerGroupPrepareAssignmentResponse:
    if isinstance(body, commands.Refusal):
        return wire.ConsumerGroupPrepareAssignmentResponse(error_code=body.code, error_message=body.message)
    group, rights = body.assignable, request.rights
    # The input names every topic of the group, also those of members with more rights.
    if not all(rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in group.topic_names):
        return wire.ConsumerGroupPrepareAssignmentResponse(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="the group has topics that this member is not authorized to describe",
        )
    places, subscriptions = _subscriptions(group)
    return wire.ConsumerGroupPrepareAssignmentResponse(
        error_code=ErrorCode.NONE,
        group_epoch=body.group_epoch,
        assignor_name=body.assignor,
        assignor_version=body.version,
        max_moves=group.max_moves,
        imbalance=group.imbalance,
        topics=[
            wire.TopicToAssign(topic_id=topic_id, topic_name=name, partitions=count)
            for topic_id, name, count in zip(group.space.topic_ids, group.topic_names, group.space.counts, strict=True)
        ],
        subscriptions=[wire.SubscriptionToAssign(topics=list(topics)) for topics in subscriptions],
        members=[
            wire.MemberToAssign(
                member_id=member.member_id,
                member_epoch=epoch,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                subscription=place,
                reason=member.reason,
                metadata_version=member.metadata_version,
                metadata_bytes=member.metadata,
            )
            for member, epoch, place in zip(group.members, body.member_epochs, places, strict=True)
        ],
        owners=list(group.owner),
    )


def _subscriptions(group: Assignable) -> tuple[Sequence[int], list[tuple[int, ...]]]:
    """Return each member's index into the distinct subscriptions, and these as indexes of topics."""
    if group.is_homogeneous:
        return [0] * len(group.members), [tuple(range(len(group.topic_names)))]
    wanted: list[list[int]] = [[] for _ in group.members]
    for topic, subscribers in enumerate(group.subscribers):
        for member in subscribers:
            wanted[member].append(topic)
    distinct: dict[tuple[int, ...], int] = {}
    places = [distinct.setdefault(tuple(topics), len(distinct)) for topics in wanted]
    return places, list(distinct)

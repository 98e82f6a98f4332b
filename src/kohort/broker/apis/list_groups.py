"""ListGroups (key 16): all groups of this broker.

Version 4: filtered by state (KIP-518). Version 5: filtered by type (KIP-848).
"""

from __future__ import annotations

from functools import partial

from kohort.base.values import from_row
from kohort.broker.chunked_responses import answer_rows, ask_shards, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import admin
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import list_groups as wire


def handle(context: BrokerContext, request: Request, message: wire.ListGroupsRequest) -> None:
    """Ask every shard for its groups."""
    states, types = tuple(message.states_filter), tuple(message.types_filter)
    check_rows(len(states) + len(types), MOST_NAMED, "filters")

    rights, kind = request.rights, ResourceType.GROUP
    # As Apache Kafka: with the right to describe the cluster every group is listed, else those that may be described.
    is_free = rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)

    def complete(replies: list[admin.ListGroupsReply]) -> None:
        if request.is_open:
            groups = sorted((group for reply in replies for group in reply.groups), key=lambda group: group.group_id)
            if not is_free:
                groups = [group for group in groups if rights.allows(AclOperation.DESCRIBE, kind, group.group_id)]
            answer_rows(
                context, request, groups, rows_at_once(row_of), lambda rows: wire.ListGroupsResponse(groups=rows)
            )

    ask_shards(context, partial(admin.ListGroups, states=states, types=types), complete)


def row_of(group: admin.ListedGroup) -> wire.ListedGroup:
    """Return the row of a group."""
    return from_row(wire.ListedGroup, group, group_state=group.state)

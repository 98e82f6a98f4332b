"""ListGroups (key 16): all groups of this broker.

Version 4: filtered by state (KIP-518). Version 5: filtered by type (KIP-848).
"""

from __future__ import annotations

from kohort.broker.chunked_responses import Gather
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.decision import ReplyBody
from kohort.ids import CauseId
from kohort.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(context: BrokerContext, request: Request, message: ListGroupsRequest) -> None:
    """Ask every shard for its groups."""
    runtime = context.runtime
    check_rows(len(message.states_filter) + len(message.types_filter), MOST_NAMED, "filters")

    def complete(replies: list[ReplyBody]) -> None:
        if request.is_open:
            request.answer(ListGroupsResponse(groups=_rows(replies)))

    whole = Gather(runtime.shard_count, complete)
    for index in range(runtime.shard_count):
        token = runtime.next_token()
        command = commands.ListGroups(
            cause=CauseId(token),
            request=token,
            states=tuple(message.states_filter),
            types=tuple(message.types_filter),
        )
        runtime.ask_shard(index, token, command, whole.slot(index))


def _rows(replies: list[ReplyBody]) -> list[ListedGroup]:
    rows = []
    for reply in replies:
        assert isinstance(reply, commands.ListGroupsReply)
        rows += [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in reply.groups
        ]
    return sorted(rows, key=lambda row: row.group_id)

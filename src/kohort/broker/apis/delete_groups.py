"""DeleteGroups (key 42): remove empty groups and their committed offsets."""

from __future__ import annotations

from kohort.broker.chunked_responses import answer_rows, rows_of_coordinators
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(context: BrokerContext, request: Request, message: DeleteGroupsRequest) -> None:
    """Ask the coordinator of each group."""
    # Asked for twice is answered once, as by Kafka.
    group_ids = list(dict.fromkeys(message.groups_names))
    check_rows(len(group_ids), MOST_NAMED, "groups")
    runtime = context.runtime

    def command_of(group_id: str) -> commands.DeleteGroup:
        token = runtime.next_token()
        return commands.DeleteGroup(cause=CauseId(token), request=token, group_id=group_id)

    def row_of(group_id: str, reply: ReplyBody) -> DeletableGroupResult:
        code = reply.code if isinstance(reply, Refusal) else ErrorCode.NONE
        return DeletableGroupResult(group_id=group_id, error_code=code)

    rows_of = rows_of_coordinators(runtime, command_of, row_of)
    answer_rows(context.loop.call_soon, request, group_ids, rows_of, lambda rows: DeleteGroupsResponse(results=rows))

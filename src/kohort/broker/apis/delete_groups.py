"""DeleteGroups (key 42): remove empty groups and their committed offsets."""

from __future__ import annotations

from kohort.broker.chunked_responses import answer_groups
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Done, Refusal, admin
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation
from kohort.wire.messages import delete_groups as wire


def handle(context: BrokerContext, request: Request, message: wire.DeleteGroupsRequest) -> None:
    """Ask the coordinator of each group."""

    def row_of(group_id: str, reply: Done | Refusal) -> wire.DeletableGroupResult:
        code = reply.code if isinstance(reply, Refusal) else ErrorCode.NONE
        return wire.DeletableGroupResult(group_id=group_id, error_code=code)

    def response_of(rows: list[wire.DeletableGroupResult]) -> wire.DeleteGroupsResponse:
        return wire.DeleteGroupsResponse(results=rows)

    answer_groups(
        context, request, message.groups_names, admin.DeleteGroup, row_of,
        response_of=response_of, needs=AclOperation.DELETE,
    )  # fmt: skip

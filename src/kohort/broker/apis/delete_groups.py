"""DeleteGroups (key 42): remove empty groups and what they have committed."""

from __future__ import annotations

from kohort.broker.context import BrokerContext
from kohort.broker.gather import Gather
from kohort.broker.limits import MOST_NAMED, check_rows
from kohort.broker.request import Request
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(context: BrokerContext, request: Request, message: DeleteGroupsRequest) -> DeleteGroupsResponse | None:
    """Ask the coordinator of each group."""
    # Asked for twice is answered once, as by Kafka.
    group_ids = list(dict.fromkeys(message.groups_names))
    check_rows(len(group_ids), MOST_NAMED, "groups")
    if not group_ids:
        return DeleteGroupsResponse()

    def complete(replies: list[commands.ReplyBody]) -> None:
        if request.is_open:
            rows = [
                DeletableGroupResult(
                    group_id=group_id,
                    error_code=reply.code if isinstance(reply, commands.Refusal) else ErrorCode.NONE,
                )
                for group_id, reply in zip(group_ids, replies, strict=True)
            ]
            request.answer(DeleteGroupsResponse(results=rows))

    whole = Gather(len(group_ids), complete)
    for index, group_id in enumerate(group_ids):
        token = context.runtime.next_token()
        command = commands.DeleteGroup(cause=CauseId(token), request=token, group_id=group_id)
        context.runtime.ask(command, whole.slot(index))
    return None

"""ConsumerGroupInstallAssignment (key 10006): the assignment that a member has computed.

Served to kohort's clients.
"""

from __future__ import annotations

from kohort.broker.chunked_responses import GROUP_DENIED
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator import commands
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import consumer_group_install_assignment as wire


def handle(context: BrokerContext, request: Request, message: wire.ConsumerGroupInstallAssignmentRequest) -> None:
    """Ask the group's coordinator."""
    if not request.rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        request.answer(_translate(request, GROUP_DENIED))
        return
    token = context.runtime.next_token()
    command = commands.InstallAssignment(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        group_epoch=message.group_epoch,
        error=message.error,
        owners=tuple(message.owners),
        said=tuple((each.member_id, each.metadata_version, bytes(each.metadata_bytes)) for each in message.members),
    )
    context.runtime.answer(request, command, _translate)


def _translate(
    request: Request, body: commands.InstallAssignmentReply | commands.Refusal
) -> wire.ConsumerGroupInstallAssignmentResponse:
    del request
    code = body.code if isinstance(body, commands.Refusal) else body.error
    return wire.ConsumerGroupInstallAssignmentResponse(error_code=code, error_message=body.message)

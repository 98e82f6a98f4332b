"""ListGroups (key 16): all groups of this broker.

Version 4: filtered by state (KIP-518). Version 5: filtered by type (KIP-848).
"""

from __future__ import annotations

from functools import partial

from kohort.base.values import from_row
from kohort.broker.chunked_responses import ask_shards
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import admin
from kohort.wire.messages import list_groups as wire


def handle(context: BrokerContext, request: Request, message: wire.ListGroupsRequest) -> None:
    """Ask every shard for its groups."""
    states, types = tuple(message.states_filter), tuple(message.types_filter)
    check_rows(len(states) + len(types), MOST_NAMED, "filters")

    def complete(replies: list[admin.ListGroupsReply]) -> None:
        if request.is_open:
            groups = sorted((group for reply in replies for group in reply.groups), key=lambda group: group.group_id)
            rows = [from_row(wire.ListedGroup, group, group_state=group.state) for group in groups]
            request.answer(wire.ListGroupsResponse(groups=rows))

    ask_shards(context.runtime, partial(admin.ListGroups, states=states, types=types), complete)

"""ListGroups, and DescribeGroups of classic groups, also of those without members or unknown.

Source: Apache Kafka's `GroupMetadataManager.listGroups`; a group that exists only by its committed offsets is listed as
an Empty classic group.
Apart: `commandtable` only refers to decision functions of other modules, and has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kohort.base.values import from_row
from kohort.coordinator import model
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import admin
from kohort.coordinator.consumer.describe import state_of, with_offline_times
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode

#: Group types in Kafka's spelling.
CLASSIC, CONSUMER = "classic", "consumer"


def decide_list(
    groups: model.GroupsState, command: admin.ListGroups, settings_for: Callable[[str], GroupSettings]
) -> Decision:
    """List the groups of the shard that pass the filters, by group id."""
    states = {state.lower() for state in command.states}
    types = {kind.lower() for kind in command.types}
    found = sorted(
        (
            group
            for group in _listed(groups, settings_for)
            if (not states or group.state.lower() in states) and (not types or group.group_type in types)
        ),
        key=lambda group: group.group_id,
    )
    return Decision(effects=(Reply(command.request, admin.ListGroupsReply(groups=tuple(found))),))


def decide_describe_classic(
    groups: model.GroupsState, command: admin.DescribeClassicGroup, settings: GroupSettings
) -> Decision:
    """Describe one classic group; a KIP-848 group is described as unknown."""
    group_id = command.group_id
    classic = groups.classic.get(group_id)
    if classic is None and groups.has_offsets(group_id) and group_id not in groups.consumer:
        reply = admin.DescribeClassicGroupReply(error=ErrorCode.NONE, group_id=group_id, state="Empty")
    else:
        reply = describe(classic, group_id)
    if reply.error is ErrorCode.NONE and settings.is_static:
        members = with_offline_times(reply.members, groups.clocks.get(group_id))
        reply = replace(reply, is_static=True, members=members)
    return Decision(effects=(Reply(command.request, reply),))


def _listed(groups: model.GroupsState, settings_for: Callable[[str], GroupSettings]) -> Iterator[admin.ListedGroup]:
    for group_id, group in groups.consumer.items():
        state = state_of(group, is_paused=settings_for(group_id).group_moves_paused)
        yield admin.ListedGroup(group_id=group_id, protocol_type="consumer", state=state, group_type=CONSUMER)
    for group_id, classic in groups.classic.items():
        yield admin.ListedGroup(
            group_id=group_id, protocol_type=classic.protocol_type or "", state=classic.state.value, group_type=CLASSIC
        )
    for group_id in {**groups.offsets, **groups.pending_offsets}:
        if group_id not in groups.consumer and group_id not in groups.classic:
            yield admin.ListedGroup(group_id=group_id, protocol_type="", state="Empty", group_type=CLASSIC)


# DescribeGroups of a classic group.
#
# Source: Apache Kafka's `ClassicGroup.asDescribedGroup`.


def describe(group: ClassicGroup | None, group_id: str) -> admin.DescribeClassicGroupReply:
    """Describe a classic group; with metadata and assignments only in state Stable, as in Kafka."""
    if group is None:
        return admin.DescribeClassicGroupReply(error=ErrorCode.GROUP_ID_NOT_FOUND, group_id=group_id, state="Dead")
    is_stable = group.state is ClassicGroupState.STABLE
    return admin.DescribeClassicGroupReply(
        error=ErrorCode.NONE,
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            from_row(
                admin.DescribedClassicMember,
                member,
                metadata=member.metadata(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )

"""Table of decision functions, looked up by the command's type.

Laws: nothing is changed here. A refusal is raised, and the shard turns it into a reply; the shard has also checked the
group id. A command of the classic protocol goes to the functions for the group's type, classic or KIP-848.
Source: architecture rule 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.base.timers import TimerTable
from kohort.base.values import value
from kohort.coordinator import commands, config_changes, disconnection, listing, membership_updates
from kohort.coordinator.classic import join, sync
from kohort.coordinator.classic.sessions import decide_heartbeat as decide_classic_heartbeat
from kohort.coordinator.classic.sessions import decide_leave
from kohort.coordinator.commands import JOIN_EPOCH, admin
from kohort.coordinator.consumer import classicmembers, describe, leave, moves, tombstones
from kohort.coordinator.consumer.assignment import async_assignor, batching_window, target
from kohort.coordinator.consumer.client_assignors.assignment_request import decide_install, decide_prepare
from kohort.coordinator.consumer.client_assignors.heartbeat_fields import tell
from kohort.coordinator.consumer.heartbeat import decide_heartbeat
from kohort.coordinator.consumer.member_metadata import add_metadata
from kohort.coordinator.consumer.reconciliation.move_throttle import decide_measured
from kohort.coordinator.decision import Decision, Disarm, TimerKey
from kohort.coordinator.delayed_heartbeats import hold_classic, hold_heartbeat
from kohort.coordinator.model import GroupsState
from kohort.coordinator.offsets import commit, delete
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import Entrance, enter
from kohort.errors import ErrorCode, Refused


@value
class Known:
    """The state of a shard, as decision functions see it.

    `settings`: the settings of groups without own configs. `settings_of`: group id -> settings, for groups with own
    configs.
    """

    settings: GroupSettings
    settings_of: dict[str, GroupSettings]
    groups: GroupsState
    timers: TimerTable[TimerKey]

    def settings_for(self, group_id: str) -> GroupSettings:
        """Return the settings of one group: the broker's, overridden by the group's own configs."""
        return self.settings_of.get(group_id, self.settings)


def _heartbeat(
    known: Known, command: commands.ConsumerGroupHeartbeat, settings: GroupSettings, now_ms: int
) -> Decision:
    if command.member_epoch != JOIN_EPOCH:
        decision = decide_heartbeat(known.groups, command, settings, now_ms=now_ms)
    else:
        entrance = enter(known.groups, command, settings, known.settings, now_ms=now_ms)
        decision = _entered(entrance, decide_heartbeat(known.groups, command, entrance.settings, now_ms=now_ms))
    # Most heartbeats have neither metadata nor a watch.
    if command.metadata is not None or command.watched_version >= 0:
        decision = add_metadata(known.groups, command, decision, now_ms=now_ms)
    group = known.groups.consumer.get(command.group_id)
    if command.client_assignors is not None or (group is not None and group.client_assignors is not None):
        decision = tell(known.groups, command, decision, now_ms=now_ms)
    if command.hold_ms < 0:
        return decision
    return hold_heartbeat(known.groups, command, decision, now_ms=now_ms)


def _join(known: Known, command: commands.JoinGroup, settings: GroupSettings, now_ms: int) -> Decision:
    entrance = enter(known.groups, command, settings, known.settings, now_ms=now_ms)
    group = known.groups.classic.get(command.group_id)
    if group is not None and settings.is_static and not entrance.settings.is_static:
        fallback = config_changes.decide_fallback(
            group, command, settings, entrance.settings, known.groups, now_ms=now_ms
        )
        return _entered(entrance, fallback)
    return _entered(entrance, _decide_join(known.groups, command, entrance.settings, now_ms))


def _decide_join(groups: GroupsState, command: commands.JoinGroup, settings: GroupSettings, now_ms: int) -> Decision:
    consumer, group = groups.consumer.get(command.group_id), groups.classic.get(command.group_id)
    if consumer is not None and consumer.members:
        return classicmembers.decide_join(groups, command, settings, now_ms=now_ms)
    decision = join.decide_join(group, command, settings, now_ms=now_ms, image=groups.image, groups=groups)
    if consumer is None or not decision.records:
        return decision
    timer = Disarm(batching_window.assignment_key(command.group_id))
    return Decision((*tombstones.build_group_tombstones(consumer), *decision.records), (timer, *decision.effects))


def _entered(entrance: Entrance, decision: Decision) -> Decision:
    """Prepend the change of the group's membership mode to the decision of a join."""
    if not entrance.records:
        return decision
    return Decision((*entrance.records, *decision.records), (*entrance.effects, *decision.effects))


def _sync(known: Known, command: commands.SyncGroup, settings: GroupSettings, now_ms: int) -> Decision:
    groups = known.groups
    consumer = groups.consumer.get(command.group_id)
    if consumer is not None:
        return classicmembers.decide_sync(consumer, command, groups.image, now_ms=now_ms)
    group = groups.classic.get(command.group_id)
    return sync.decide_sync(group, command, settings, now_ms=now_ms, image=groups.image, groups=groups)


def _classic_heartbeat(known: Known, command: commands.Heartbeat, _: GroupSettings, now_ms: int) -> Decision:
    groups = known.groups
    consumer = groups.consumer.get(command.group_id)
    if consumer is not None:
        decision = classicmembers.decide_heartbeat(consumer, command, groups.image, now_ms=now_ms)
    else:
        group = groups.classic.get(command.group_id)
        decision = decide_classic_heartbeat(group, command, now_ms=now_ms, groups=groups)
    return hold_classic(groups, command, decision, now_ms=now_ms)


def _leave(known: Known, command: commands.LeaveGroup, settings: GroupSettings, now_ms: int) -> Decision:
    groups = known.groups
    if command.group_id in groups.consumer:
        return leave.decide_removal(groups, command, settings, now_ms=now_ms)
    group = groups.classic.get(command.group_id)
    return decide_leave(group, command, settings, now_ms=now_ms, groups=groups)


def _with_settings(decide: Callable[..., Decision]) -> Callable[..., Decision]:
    """Wrap a decision function that takes the groups, the command, the settings and the time."""
    return lambda known, command, settings, now_ms: decide(known.groups, command, settings, now_ms=now_ms)


def _of_groups(decide: Callable[..., Decision]) -> Callable[..., Decision]:
    """Wrap a decision function that takes the groups and the command."""
    return lambda known, command, _, __: decide(known.groups, command)


#: Command type -> its decision function. Arguments: the shard's state, the command, the settings of the command's group
#: (the broker's, if it has none) and the time.
DECIDE: Final[dict[type[commands.Command], Callable[..., Decision]]] = {
    commands.ConsumerGroupHeartbeat: _heartbeat,
    commands.JoinGroup: _join,
    commands.SyncGroup: _sync,
    commands.Heartbeat: _classic_heartbeat,
    commands.LeaveGroup: _leave,
    commands.CommitOffsets: _with_settings(commit.decide_commit),
    commands.CommitTransactionOffsets: _with_settings(commit.decide_commit_in_transaction),
    commands.CompleteTransaction: _of_groups(commit.decide_complete),
    commands.FetchOffsets: _of_groups(commit.decide_fetch),
    admin.DeleteOffsets: _of_groups(delete.decide_delete_offsets),
    commands.ExpireOffsets: _with_settings(delete.decide_expire),
    admin.DeleteGroup: _of_groups(delete.decide_delete_group),
    admin.ListGroups: lambda known, command, _, __: listing.decide_list(known.groups, command, known.settings_for),
    admin.DescribeConsumerGroup: lambda known, command, settings, _: describe.decide_describe(
        known.groups, command, settings
    ),
    admin.DescribeClassicGroup: lambda known, command, settings, _: listing.decide_describe_classic(
        known.groups, command, settings
    ),
    admin.SubmitMoves: _with_settings(moves.decide_submit),
    admin.DescribeMoves: _of_groups(moves.decide_describe_moves),
    # Configs are checked against the broker's settings, not those of the group.
    admin.AlterGroupConfigs: lambda known, command, _, now_ms: config_changes.decide_alter(
        known.groups, command, known.settings, known.timers, now_ms=now_ms
    ),
    admin.DescribeGroupConfigs: lambda known, command, *_: config_changes.decide_describe_configs(
        known.groups, command, known.settings
    ),
    admin.ListGroupConfigs: _of_groups(config_changes.decide_list_configs),
    commands.TopicsChanged: lambda known, command, _, now_ms: delete.decide_topics_changed(
        known.groups, command, known.settings_for, now_ms=now_ms
    ),
    commands.PatternSent: _with_settings(target.decide_pattern_sent),
    commands.LogsMeasured: _with_settings(decide_measured),
    commands.TargetComputed: _with_settings(async_assignor.decide_computed),
    commands.PrepareAssignment: _with_settings(decide_prepare),
    commands.InstallAssignment: _with_settings(decide_install),
    commands.MemberDisconnected: lambda known, command, settings, now_ms: disconnection.decide_disconnected(
        known.groups, command, settings, known.timers, now_ms=now_ms
    ),
    commands.MemberFetched: _with_settings(disconnection.decide_fetched),
    commands.WatchMember: _with_settings(membership_updates.decide_watch),
}


# Validation of group ids, the first step of every command about a group.
#
# An id goes into the keys of the group log, which have an int16 for its length. Consumers that name no group have the
# empty id: it may have offsets, be described and be deleted, and no member can join it.
#
# Laws: no other place checks an id. The longest id is the same for all commands; the response to the empty one depends
# on the command.
# Source: the layout of `__consumer_offsets` (Apache Kafka fails to write a longer id and answers UNKNOWN_SERVER_ERROR);
# Apache Kafka's `GroupCoordinatorService` for the empty one, each API for itself.

#: Longest group id, in bytes of UTF-8.
LONGEST_GROUP_ID: Final = 32_767
#: Most bytes of a character in UTF-8.
_WIDEST: Final = 4
#: Commands that accept the empty group id like any other.
_MAY_BE_EMPTY: Final = frozenset(
    {commands.CommitOffsets, commands.FetchOffsets, admin.DescribeClassicGroup, admin.DeleteGroup}
)
_NO_CONFIGS: Final = "the group's name is empty: there are no configs for all groups"
#: Command -> error and message for the empty id, where they are not the ordinary ones.
_EMPTY: Final[dict[type[commands.GroupCommand], tuple[ErrorCode, str]]] = {
    commands.ConsumerGroupHeartbeat: (ErrorCode.INVALID_REQUEST, "GroupId can't be empty"),
    admin.AlterGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
    admin.DescribeGroupConfigs: (ErrorCode.INVALID_REQUEST, _NO_CONFIGS),
}


def check_group_id(command: commands.GroupCommand) -> None:
    """Refuse a group id that is too long, or empty where this command needs a name.

    Raises:
        Refused: INVALID_GROUP_ID; INVALID_REQUEST for the empty id in a KIP-848 heartbeat and in configs.
    """
    group_id = command.group_id
    if not group_id and type(command) not in _MAY_BE_EMPTY:
        raise Refused(*_EMPTY.get(type(command), (ErrorCode.INVALID_GROUP_ID, "a group needs a name")))
    if len(group_id) * _WIDEST > LONGEST_GROUP_ID and len(group_id.encode("utf-8", "replace")) > LONGEST_GROUP_ID:
        raise Refused(ErrorCode.INVALID_GROUP_ID, f"a group's name has at most {LONGEST_GROUP_ID} bytes")

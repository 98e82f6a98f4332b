"""Classic-protocol members of a KIP-848 group: JoinGroup, SyncGroup, Heartbeat and their timeouts.

The coordinator treats such a member like any other: its JoinGroup is a full heartbeat (topics, owned partitions), its
SyncGroup fetches its assignment, and its generation is its epoch. The group has no leader.

Laws: a JoinGroup gets its response at once. Only a JoinGroup changes the member's assignment, so that a member never
owns a partition without knowing it. A member has to rejoin only if it gains or loses a partition by that. While its
target equals its assignment, every generation since its last one stays valid.
Source: KIP-848 (online migration); Apache Kafka's `classicGroupJoinToConsumerGroup`, `...SyncTo...`,
`...HeartbeatTo...`. Apache Kafka makes every classic member rejoin with each new group epoch, and an eager member stops
for that; kohort does not.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator import commands
from kohort.coordinator.classic import join, pending_decision, subscriptions, validation
from kohort.coordinator.commands import JOIN_EPOCH
from kohort.coordinator.consumer.heartbeat import decide_member
from kohort.coordinator.consumer.migration import build_hosted_join_reply, decide_succession, is_last_of_its_kind
from kohort.coordinator.consumer.reconciliation import effective_target, reconcile
from kohort.coordinator.consumer.static import bearer_of, decide_release
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.consumer.validation import MAX_OWNED_PARTITIONS, check_topics
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, TimerKey
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records.types import CurrentAssignmentSet, MemberConnectionSeen, MemberState, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId


def decide_join(groups: GroupsState, command: commands.JoinGroup, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Admit or re-admit a classic member to a KIP-848 group that has members.

    Raises:
        Refused: the refusals of a classic group; INCONSISTENT_GROUP_PROTOCOL also where the policy is "disabled"
            (KAFKA-20640): such a group would stay mixed for good.
    """
    group = groups.consumer[command.group_id]
    join.check_form(command, settings)
    if settings.group_consumer_migration_policy == "disabled":
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group {command.group_id} uses the consumer protocol and group.consumer.migration.policy is disabled: "
            "use group.protocol=consumer",
        )
    former = _former(group, command)
    _check_protocols(group, command, former)
    # The joining process replaces the last consumer-protocol member: the group becomes classic.
    if former is not None and former.classic is None and is_last_of_its_kind(group, former, settings):
        return decide_succession(groups, group, former, command, settings, now_ms=now_ms)
    # KIP-394, as in a classic group.
    if not command.member_id and command.instance_id is None and command.requires_known_member_id:
        reply = pending_decision.build_join_error(ErrorCode.MEMBER_ID_REQUIRED, command.fresh_member_id)
        return Decision(effects=(Reply(command.request, reply),))
    subscription = _read(command)
    member_id = command.member_id or command.fresh_member_id
    member = group.members.get(member_id)
    # The member was removed, and its partitions may have a new owner: it has to give them up first.
    if member is None and former is None and command.member_id and any(subscription.owned.values()):
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"the member {member_id} is not in the group any more and owns nothing"
        )
    heartbeat = commands.ConsumerGroupHeartbeat(
        cause=command.cause,
        request=command.request,
        group_id=command.group_id,
        member_id=member_id,
        member_epoch=JOIN_EPOCH,
        client_id=command.client_id,
        client_host=command.client_host,
        instance_id=command.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=_rebalance_timeout_ms(command),
        subscribed_topic_names=subscription.topics,
        # A client owns no partition before it is a member, whatever its subscription lists.
        topic_partitions={} if member is None else _owned(subscription, member, groups.image),
        classic=commands.ClassicMemberFacts(session_timeout_ms=command.session_timeout_ms, protocols=command.protocols),
    )
    if member is None:
        # The member cannot ask for its partitions again before its next heartbeat, so it does not wait for the window.
        settings = replace(settings, group_consumer_assignment_window_ms=0)
    return _as_join(decide_member(groups, heartbeat, settings, now_ms=now_ms), command, member_id, now_ms=now_ms)


def decide_sync(group: ConsumerGroup, command: commands.SyncGroup, image: TopicImage, *, now_ms: int) -> Decision:
    """Reply with the member's assignment; if it has to rejoin, its next heartbeat says so."""
    # Kafka refuses SyncGroup with REBALANCE_IN_PROGRESS where the group has moved on: in a group that changes all the
    # time such a member never gets an assignment.
    member, classic = _check_member(group, command)
    name, metadata = classic.protocols[0]
    if command.protocol_type not in (None, subscriptions.CONSUMER_PROTOCOL_TYPE) or command.protocol_name not in (
        None,
        name,
    ):
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member's JoinGroup was answered with the protocol {name}"
        )
    by_id = image.by_id
    assigned = {
        by_id[topic_id].name: sorted(grants)
        for topic_id, grants in sorted(member.assigned.items())
        if topic_id in by_id
    }
    reply = commands.SyncGroupReply(
        error=ErrorCode.NONE,
        protocol_type=subscriptions.CONSUMER_PROTOCOL_TYPE,
        protocol_name=name,
        assignment=subscriptions.write_assignment(assigned, subscription=metadata),
    )
    # A member that has its assignment is not awaited by the sync deadline any more.
    disarm = Disarm(TimerKey("sync", group.group_id, member.member_id))
    effects = (Reply(command.request, reply), disarm, _session(member, classic, now_ms=now_ms))
    return Decision(_heard(group, member), effects)


def decide_heartbeat(group: ConsumerGroup, command: commands.Heartbeat, image: TopicImage, *, now_ms: int) -> Decision:
    """Renew a member's session; REBALANCE_IN_PROGRESS: a JoinGroup would change its assignment."""
    member, classic = _check_member(group, command)
    session = _session(member, classic, now_ms=now_ms)
    join_key = TimerKey("join", group.group_id, member.member_id)
    heard = _heard(group, member)
    # A member that has its target has no step, and nothing is computed for its heartbeat.
    step = _next_step(group, member, image) if member.member_id in group.behind else None
    if _has_to_rejoin(group, member, step):
        deadline_ms = now_ms + max(member.rebalance_timeout_ms, 0)
        reply = Reply(command.request, commands.Refusal(code=ErrorCode.REBALANCE_IN_PROGRESS))
        # Further heartbeats do not extend the member's time to rejoin.
        return Decision(heard, (reply, session, Arm(join_key, deadline_ms, if_absent=True)))
    effects: tuple[Effect, ...] = (Reply(command.request, commands.Done()), session, Disarm(join_key))
    # Only a step without other partitions is written here: any other needs a JoinGroup.
    if step is None or not reconcile.is_same(step.assigned, member.assigned):
        return Decision(heard, effects)
    # The client knows the generation of its request, even if the group has a newer one.
    return Decision((*heard, replace(step, previous_member_epoch=command.generation_id)), effects)


def check_generation(member: ConsumerMember, generation_id: int) -> None:
    """Refuse a generation below the member's previous epoch, above its epoch, or 0: ILLEGAL_GENERATION."""
    if not max(1, member.previous_member_epoch) <= generation_id <= member.member_epoch:
        raise Refused(
            ErrorCode.ILLEGAL_GENERATION,
            f"the member's generation is {member.member_epoch}, and not {generation_id}; it has to rejoin",
        )


def session_timeout_ms(member: ConsumerMember, settings: GroupSettings) -> int:
    """Return a member's session timeout: its own if it is a classic one, else its group's."""
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return settings.group_consumer_session_timeout_ms


def _former(group: ConsumerGroup, command: commands.JoinGroup) -> ConsumerMember | None:
    """Return the member that sent a JoinGroup, or that it replaces by instance id; `None`: neither."""
    if command.instance_id is None:
        return _own(group, command.member_id)
    if not command.member_id:
        # A process without a member id is known by its instance id, and replaces the former one.
        return group.members.get(group.instance_ids.get(command.instance_id, ""))
    member = bearer_of(group, command.instance_id, command.member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member of the group is called {command.instance_id}")
    return _own(group, member.member_id)


def _own(group: ConsumerGroup, member_id: str) -> ConsumerMember | None:
    member = group.members.get(member_id)
    if member is not None and member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {member_id} speaks the consumer protocol")
    return member


def _check_protocols(group: ConsumerGroup, command: commands.JoinGroup, former: ConsumerMember | None) -> None:
    """Check that classic members have a common protocol, so that the group may become classic again."""
    size = sum(len(name) + len(metadata) for name, metadata in command.protocols)
    if size > validation.MEMBER_METADATA_LIMIT_BYTES:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the member's protocols take {size} bytes, {validation.MEMBER_METADATA_LIMIT_BYTES} are allowed",
        )
    before = None if former is None else former.classic
    others = group.classic_count - (before is not None)
    spoken = group.classic_protocols
    own = () if before is None else before.protocol_names
    # The protocols of the replaced member do not count.
    is_common = any(not others or spoken.get(name, 0) - (name in own) == others for name, _ in command.protocols)
    if command.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE or not is_common:
        names = ", ".join(name for name, _ in command.protocols)
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the classic members of {group.group_id} have no protocol in common with {names or 'none'} of type "
            f"{command.protocol_type or 'none'}: give every member at least one that all of them have",
        )
    if group.classic_metadata_bytes - (0 if before is None else before.metadata_bytes) + size > (
        validation.GROUP_METADATA_LIMIT_BYTES
    ):
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"the metadata of all members may take {validation.GROUP_METADATA_LIMIT_BYTES} bytes",
        )


def _read(command: commands.JoinGroup) -> subscriptions.EmbeddedSubscription:
    """Return the subscription of the member's first protocol, within the bounds of any member's."""
    subscription = subscriptions.read_subscription(command.protocols[0][1])
    if subscription is None:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the subscription in the protocol {command.protocols[0][0]} is not one of a consumer",
        )
    check_topics(subscription.topics)
    if sum(len(partitions) for partitions in subscription.owned.values()) > MAX_OWNED_PARTITIONS:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the member owns more than {MAX_OWNED_PARTITIONS} partitions")
    return subscription


def _owned(
    subscription: subscriptions.EmbeddedSubscription, member: ConsumerMember, image: TopicImage
) -> commands.Partitions:
    """Return the partitions that the member lists, plus those assigned after the generation of its list."""
    # A request that was long on its way must not release partitions that the member has got since (KIP-792).
    owned: dict[TopicId, set[int]] = {}
    for name, partitions in subscription.owned.items():
        topic = image.by_name.get(name)
        if topic is not None:
            owned.setdefault(topic.topic_id, set()).update(partitions)
    # KIP-792: with the generation of the list, later grants can be told from released partitions.
    if subscription.generation != subscriptions.NO_GENERATION:
        for grants in (member.assigned, member.pending_revocation):
            for topic_id, granted in grants.items():
                later = [partition for partition, epoch in granted.items() if epoch > subscription.generation]
                owned.setdefault(topic_id, set()).update(later)
    return {topic_id: tuple(sorted(found)) for topic_id, found in owned.items() if found}


def _rebalance_timeout_ms(command: commands.JoinGroup) -> int:
    # Version 0 has none of its own.
    return command.rebalance_timeout_ms if command.rebalance_timeout_ms >= 0 else command.session_timeout_ms


def _as_join(decision: Decision, command: commands.JoinGroup, member_id: str, *, now_ms: int) -> Decision:
    """Convert the decision on a heartbeat to one on the JoinGroup from which the heartbeat was made."""
    group_id = command.group_id
    effects: list[Effect] = []
    for effect in decision.effects:
        if isinstance(effect, Reply) and isinstance(effect.body, commands.ConsumerGroupHeartbeatReply):
            epoch = effect.body.member_epoch
            name = command.protocols[0][0]
            effects.append(Reply(command.request, build_hosted_join_reply(member_id, name, generation_id=epoch)))
        else:
            effects.append(effect)
    # A classic member's own session timeout counts, not that of the group.
    effects.append(Arm(TimerKey("session", group_id, member_id), now_ms + command.session_timeout_ms))
    effects.append(Disarm(TimerKey("join", group_id, member_id)))
    # The member has to fetch its assignment by SyncGroup in time.
    effects.append(Arm(TimerKey("sync", group_id, member_id), now_ms + _rebalance_timeout_ms(command)))
    return Decision(decision.records, tuple(effects))


def _check_member(
    group: ConsumerGroup, command: commands.SyncGroup | commands.Heartbeat
) -> tuple[ConsumerMember, commands.ClassicMemberFacts]:
    if command.instance_id is not None and bearer_of(group, command.instance_id, command.member_id) is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"no member of the group is called {command.instance_id}")
    member = group.members.get(command.member_id)
    if member is None or member.classic is None:
        raise Refused(
            ErrorCode.UNKNOWN_MEMBER_ID, f"the group {command.group_id} has no classic member {command.member_id}"
        )
    check_generation(member, command.generation_id)
    return member, member.classic


def _heard(group: ConsumerGroup, member: ConsumerMember) -> tuple[Record, ...]:
    """Mark a disconnected member as connected again."""
    if not member.is_disconnected:
        return ()
    return (MemberConnectionSeen(group_id=group.group_id, member_id=member.member_id, is_gone=False),)


def _session(member: ConsumerMember, classic: commands.ClassicMemberFacts, *, now_ms: int) -> Arm:
    return Arm(member.session_key, now_ms + classic.session_timeout_ms)


def _next_step(group: ConsumerGroup, member: ConsumerMember, image: TopicImage) -> CurrentAssignmentSet | None:
    """Return the current assignment that a JoinGroup would lead to; `None` if it would not change."""
    by_name = image.by_name
    goal = reconcile.ReconciliationTarget(
        epoch=group.target_epoch,
        target=effective_target.effective_target_of(group, member.member_id),
        subscribed=frozenset(by_name[name].topic_id for name in topics_of(group, member) if name in by_name),
        holders=group.holders,
        existing=image.by_id,
    )
    if group.instance_ids:
        _, holders = decide_release(group, goal, ())
        goal = replace(goal, holders=holders)
    return reconcile.decide_next_assignment(member, goal, owned=None, group_id=group.group_id)


def _has_to_rejoin(group: ConsumerGroup, member: ConsumerMember, step: CurrentAssignmentSet | None) -> bool:
    """Return whether the member has to rejoin, because a JoinGroup would change its assignment."""
    # A member rejoins at most twice to gain partitions: for the free ones when the target is new, and for all others
    # once they are free.
    if member.state in (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN):
        return True
    if step is None:
        return False
    # To revoke partitions, a classic member has to rejoin.
    if step.pending_revocation:
        return True
    if reconcile.is_same(step.assigned, member.assigned):
        return False
    return step.state == MemberState.STABLE or member.member_epoch < group.target_epoch

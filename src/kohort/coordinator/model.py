"""State of one coordinator: KIP-848 groups, classic groups, committed offsets and the topic image.

Laws: only `apply` functions mutate these objects. An attribute marked "derived" follows from the others and is not
part of the durable state; `invariants.py` recomputes it.
Source: KIP-848 (the three epochs, member states), Apache Kafka's `__consumer_offsets` records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Final, NamedTuple

from kohort.base.values import value
from kohort.coordinator import commands, interning
from kohort.coordinator.classic.state import ClassicGroup, durable_view
from kohort.coordinator.consumer.assignment.balance import TargetBalance
from kohort.coordinator.consumer.client_assignors.state import ClientAssignorState
from kohort.coordinator.consumer.metadata_log import MetadataLog
from kohort.coordinator.decision import ComputeTarget, TimerKey
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import Grants, MemberState, MoveFacts, OffsetCommitted, Target
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId

#: Topic id and partition.
Place = tuple[TopicId, int]

#: The pending revocations of most members: none. Shared, as no mapping of grants is changed in place.
NO_GRANTS: Final[Grants] = {}
#: The target of a member that has no record of one.
NO_TARGET: Final[Target] = {}
#: Shared empty mappings for groups without names, patterns, protocols and votes; never changed in place: `apply`
#: replaces one by a mapping of the group's own.
NOBODY: Final[dict[str, int]] = {}
NO_NAMES: Final[dict[str, str]] = {}
NO_PATTERNS: Final[dict[str, facts.RegularExpressionResolved]] = {}
NO_SIGHTS: Final[dict[str, tuple[commands.Sight, int]]] = {}


@dataclass(slots=True, eq=False, repr=False)
class ConsumerMember:
    """One member of a KIP-848 group: its subscription (record 5) and its partitions (record 8)."""

    group_id: InitVar[str]
    #: Id of the member, unique in its group.
    member_id: str
    #: Instance id (KIP-345); `None`: a dynamic member.
    instance_id: str | None = None
    #: Rack of the client; `None`: not given.
    rack_id: str | None = None
    #: Client id.
    client_id: str = ""
    #: Host that the client connects from.
    client_host: str = ""
    #: Subscribed topic names, ascending, each once.
    subscribed_topic_names: tuple[str, ...] = ()
    #: Subscribed pattern; `None`: none.
    subscribed_topic_regex: str | None = None
    #: Rebalance timeout: how long the member may take to revoke partitions, ms.
    rebalance_timeout_ms: int = -1
    #: Server-side assignor that the member requests; `None` leaves the choice to the broker.
    server_assignor: str | None = None
    #: Facts of its last JoinGroup; `None`: it speaks the consumer protocol.
    classic: commands.ClassicMemberFacts | None = None
    #: Whether its connection is known to be closed and that matters (`liveness`); a restart forgets it.
    is_disconnected: bool = False
    #: Until when the coordinator waits for the member's list of its partitions, after it told it something new, ms;
    #: 0: the member has sent it. A restart forgets it.
    list_awaited_ms: int = 0
    #: Epoch that the member knew when it last got news beside its heartbeats, 0 if it never did; and whether it has
    #: not shown since that it knows the news. A restart forgets both.
    known_epoch: int = 0
    is_told_aside: bool = False
    #: Member epoch: that of the latest target which changed the member's partitions, once it has reconciled that; -2:
    #: a static member that left for a while.
    member_epoch: int = 0
    #: Previous member epoch; a heartbeat with it comes from a member that did not get the last response.
    previous_member_epoch: int = -1
    #: State of the member's reconciliation.
    state: MemberState = MemberState.STABLE
    #: Partitions that the member may read, with the epoch of each; disjoint from `pending_revocation`.
    assigned: Grants = field(default_factory=lambda: NO_GRANTS)
    #: Partitions that the member was told to revoke and has not yet; empty unless UNREVOKED_PARTITIONS.
    pending_revocation: Grants = field(default_factory=lambda: NO_GRANTS)
    #: Deadlines of `pending_revocation`: topic id -> partition -> time, ms. After a restart the member has its
    #: whole rebalance timeout again.
    revoke_by: Grants = field(default_factory=lambda: NO_GRANTS)
    #: Partitions assigned while it still had some to revoke, until it reports that it owns them: topic id ->
    #: partition -> time until which the coordinator waits for that, ms.
    untaken: Grants = field(default_factory=lambda: NO_GRANTS)
    #: Key of the session's deadline, built once.
    session_key: TimerKey = field(init=False)

    def __post_init__(self, group_id: str) -> None:
        self.session_key = TimerKey("session", group_id, self.member_id)


class WaitingMove(NamedTuple):
    """A move that the throttle defers: `keeper` owns the partition until it begins, then `taker` gets it."""

    keeper: str
    taker: str


class ThrottleProgress(NamedTuple):
    """State of a group's move throttle (a token bucket).

    `until_ms`: the time by which the configured rate allows the moves begun so far. `gap_ms`: the time between two
    moves at that rate. Both are 0 if no move has begun under a throttle.
    """

    until_ms: float
    gap_ms: float


#: Progress of a group in which no move has begun at a pace; shared.
NOT_THROTTLED: Final = ThrottleProgress(0.0, 0.0)


class Weights(NamedTuple):
    """Weights by which deferred moves are sorted, and the time of their measurement, ms; 0: not yet."""

    of: Mapping[Place, int]
    weighed_ms: int


#: Weights of a group without waiting moves; shared.
NO_WEIGHTS: Final = Weights({}, 0)


@value
class AssignorFailure:
    """Failures of a custom assignor.

    `error`: the latest error. `count`: failures in a row. `retry_ms`: time of the next attempt.
    """

    assignor: str
    error: str
    count: int
    retry_ms: int


@value(kw_only=False, frozen=False, eq=False)
class ConsumerGroup:
    """One KIP-848 group."""

    group_id: str
    #: Group epoch (record 3): rises by one with each change of members, subscriptions or topics.
    epoch: int = 0
    #: Hash of the subscribed topics that `epoch` was set for.
    metadata_hash: int = 0
    #: Epoch that `targets` were computed for (record 6); at most `epoch`.
    target_epoch: int = 0
    #: When `targets` were computed; 0 while the group is empty.
    target_timestamp_ms: int = 0
    #: member id -> the partitions of its target (record 7); disjoint between members; no entry: no partitions.
    targets: dict[str, Target] = field(default_factory=dict)
    #: member id -> member.
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    #: pattern -> the topics that it was resolved to (record 16); only patterns with subscribers.
    regexes: dict[str, facts.RegularExpressionResolved] = field(default_factory=lambda: NO_PATTERNS)
    #: Derived: topic id -> partition -> id of the member that has it assigned or pending revocation.
    holders: dict[TopicId, dict[int, str]] = field(default_factory=dict)
    #: Derived: instance id -> id of its member, also while that member is away.
    instance_ids: dict[str, str] = field(default_factory=lambda: NO_NAMES)
    #: Derived: set of topics subscribed to, by name or pattern -> number of members with exactly that set.
    subscriptions: dict[tuple[str, ...], int] = field(default_factory=dict)
    #: Derived: topic name -> number of members that subscribe to it, by name or pattern.
    topic_subscribers: dict[str, int] = field(default_factory=dict)
    #: pattern -> what the member that sent it last may see, and the edition of its topics. A restart forgets it.
    sights: dict[str, tuple[commands.Sight, int]] = field(default_factory=lambda: NO_SIGHTS)
    #: Derived: pattern -> number of members that subscribe with it.
    regex_subscribers: dict[str, int] = field(default_factory=lambda: NOBODY)
    #: Derived: number of members that speak the classic protocol.
    classic_count: int = 0
    #: Derived: protocol name -> number of classic members that speak it; never 0.
    classic_protocols: dict[str, int] = field(default_factory=lambda: NOBODY)
    #: Derived: approximate memory of the protocols of all classic members, bytes.
    classic_metadata_bytes: int = 0
    #: Derived: ids of members that have not reconciled their target, or are away; only these need a new epoch.
    behind: set[str] = field(default_factory=set)
    #: Deferred moves, in order; their keepers have the partitions in `assigned`. A restart derives them again.
    waiting: dict[Place, WaitingMove] = field(default_factory=dict)
    #: Weight of each of `waiting`: larger ones begin first. A restart forgets it.
    weights: Weights = NO_WEIGHTS
    #: Observed progress of open moves that no administrator submitted. A restart forgets it.
    moves: dict[Place, MoveFacts] = field(default_factory=dict)
    #: The latest submitted move of each partition (record 20,002), open or ended.
    submitted: dict[Place, MoveFacts] = field(default_factory=dict)
    #: Whether moves may have waited, also before a restart: a mover may be behind at the target's own epoch.
    has_held_back: bool = False
    #: State of the move throttle. A restart forgets it.
    throttle: ThrottleProgress = NOT_THROTTLED
    #: Published metadata of members (record 20,008); `None` if no member has ever published.
    published: MetadataLog | None = None
    #: Derived: name of an assignor -> number of members that request it; a restart keeps it.
    assignor_votes: dict[str, int] = field(default_factory=lambda: NOBODY)
    #: Derived: balance of `targets`, in a large group; `None` until it is needed. A restart forgets it.
    balance: TargetBalance | None = None
    #: State of client-side assignors; `None` until a member has one.
    client_assignors: ClientAssignorState | None = None
    #: The computation that runs outside of the coordinator; `None` if none runs. A restart forgets it.
    computing: ComputeTarget | None = None
    #: Failure of the assignor that delays the target; `None` if it works. A restart forgets it.
    failure: AssignorFailure | None = None
    #: Time of the first change of the group since its latest target; 0: none. A restart forgets it.
    window_opened_ms: int = 0


@value(kw_only=False, frozen=False, eq=False)
class OpenTransaction:
    """An open transaction of a producer with pending offsets in this shard."""

    #: The newest epoch of the producer that wrote in it.
    producer_epoch: int
    #: Groups for which offsets were committed in it, in the order of the log.
    group_ids: dict[str, None] = field(default_factory=dict)


class GroupOffsets(NamedTuple):
    """The offsets of one group, as `GroupsState` has them.

    `committed`: topic -> partition -> the latest commit. `pending`: (topic, partition) -> producers with a commit of an
    open transaction.
    """

    committed: Mapping[str, Mapping[int, OffsetCommitted]]
    pending: Mapping[tuple[str, int], Collection[int]]


@value(kw_only=False, frozen=False, eq=False)
class GroupsState:
    """The whole state of one shard; a group id is in at most one of `consumer` and `classic`."""

    #: The topic image; version 0: the broker has not provided it yet.
    image: TopicImage = field(default_factory=TopicImage)
    #: group id -> KIP-848 group.
    consumer: dict[str, ConsumerGroup] = field(default_factory=dict)
    #: group id -> classic group.
    classic: dict[str, ClassicGroup] = field(default_factory=dict)
    #: group id -> topic -> partition -> the latest commit; no empty inner mapping.
    #: A group id that is only here is a simple group: a client commits without being a member.
    offsets: dict[str, dict[str, dict[int, OffsetCommitted]]] = field(default_factory=dict)
    #: group id -> (topic, partition) -> producer id -> the commit of its open transaction, in the order of the log;
    #: `None` where a later commit overrides it. No empty inner mapping.
    pending_offsets: dict[str, dict[tuple[str, int], dict[int, OffsetCommitted | None]]] = field(default_factory=dict)
    #: Producer id -> its open transaction in this shard.
    transactions: dict[int, OpenTransaction] = field(default_factory=dict)
    #: group id -> member id -> its held heartbeat; no empty inner mapping. A restart forgets them, as it closes
    #: their connections.
    holds: dict[str, dict[str, commands.AnyHeartbeat]] = field(default_factory=dict)
    #: group id -> member id -> its watch, by which fetch and commit responses get news; no empty inner mapping.
    #: A restart forgets them.
    watches: dict[str, dict[str, commands.WatchMember]] = field(default_factory=dict)
    #: group id -> its own configs, also of groups that do not exist; no empty inner mapping.
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    #: group id -> clock of a static group with offline members or waiting new members.
    clocks: dict[str, StaticClock] = field(default_factory=dict)
    #: (group id, member id) of processes that lost their instance id to newer ones in static groups, the latest
    #: last. A restart forgets them.
    fenced_instances: dict[tuple[str, str], None] = field(default_factory=dict)
    #: group id -> lease of grants that are older than its present, shorter lease, and when the last of them ends, ms.
    #: A restart forgets them.
    longer_leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: Derived: pool that keeps equal values once.
    sharing: interning.Interning = field(default_factory=interning.Interning)

    def find_member(self, group_id: str, member_id: str) -> ConsumerMember | None:
        """Return a member of a KIP-848 group, `None` if the id is not a member."""
        group = self.consumer.get(group_id)
        return None if group is None else group.members.get(member_id)

    def has_offsets(self, group_id: str) -> bool:
        """Return whether the group has committed offsets, or offsets in an open transaction."""
        return group_id in self.offsets or group_id in self.pending_offsets


# The durable state of a shard as one comparable value: a fold over its log gives the same.
#
# Laws: state that a restart forgets is not in it.
# Source: architecture rule 2: recovery is the same apply.


def digest_state(groups: GroupsState) -> dict[str, object]:
    """Return the whole durable state of `groups`."""
    views = {group_id: durable_view(group) for group_id, group in groups.classic.items()}
    return {
        "consumer": {group_id: _digest_group(group) for group_id, group in groups.consumer.items()},
        "classic": {group_id: view for group_id, view in views.items() if view is not None},
        "rebalances": {group_id: group.due for group_id, group in groups.classic.items() if group.due is not None},
        "offsets": {
            (group_id, topic, partition): committed
            for group_id, topics in groups.offsets.items()
            for topic, partitions in topics.items()
            for partition, committed in partitions.items()
        },
        "transactions": {
            producer_id: (transaction.producer_epoch, tuple(transaction.group_ids))
            for producer_id, transaction in groups.transactions.items()
        },
        "pending_offsets": {
            (group_id, *place): tuple(claims.items())
            for group_id, partitions in groups.pending_offsets.items()
            for place, claims in partitions.items()
        },
        "configs": {group_id: dict(configs) for group_id, configs in groups.configs.items()},
        # The time that the clock has counted, and not the time of day: a restart continues the count.
        "clocks": {
            group_id: (clock.noted_ms - clock.lost_ms, clock.window_opened_ms, dict(clock.offline))
            for group_id, clock in groups.clocks.items()
        },
    }


def _digest_group(group: ConsumerGroup) -> dict[str, object]:
    """Return the durable part of one KIP-848 group."""
    members: dict[str, object] = {
        member.member_id: (
            member.instance_id,
            member.rack_id,
            member.client_id,
            member.client_host,
            member.subscribed_topic_names,
            member.subscribed_topic_regex,
            member.rebalance_timeout_ms,
            member.server_assignor,
            member.classic,
            member.member_epoch,
            member.previous_member_epoch,
            member.state,
            {topic_id: dict(grants) for topic_id, grants in member.assigned.items()},
            {topic_id: dict(grants) for topic_id, grants in member.pending_revocation.items()},
        )
        for member in group.members.values()
    }
    side = group.client_assignors
    if side is not None and not side.assignors and not side.said:
        side = None
    return {
        "epoch": group.epoch,
        "metadata_hash": group.metadata_hash,
        "target_epoch": group.target_epoch,
        "target_timestamp_ms": group.target_timestamp_ms,
        "targets": dict(group.targets),
        "regexes": dict(group.regexes),
        "submitted": dict(group.submitted),
        "published": {} if group.published is None else group.published.living(),
        "members": members,
        "client_assignors": {} if side is None else {"assignors": dict(side.assignors), "said": dict(side.said)},
    }

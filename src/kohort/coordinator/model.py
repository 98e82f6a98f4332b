"""State of one coordinator: KIP-848 groups, classic groups, committed offsets and the topic image.

Laws: only `apply` functions mutate these objects. An attribute marked "derived" follows from the others and is not
part of the durable state; `invariants.py` recomputes it.
Source: KIP-848 (the three epochs, member states), Apache Kafka's `__consumer_offsets` records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.coordinator.classic.state import ClassicGroup, durable_view
from kohort.coordinator.commands import AnyHeartbeat, ClassicMemberFacts, WatchMember
from kohort.coordinator.consumer.assignment.balance import TargetBalance
from kohort.coordinator.consumer.client_assignors.state import ClientSide
from kohort.coordinator.consumer.metadata_log import MetadataLog
from kohort.coordinator.decision import ComputeTarget, TimerKey
from kohort.coordinator.interning import Interning
from kohort.coordinator.records.types import MemberState, MoveFacts, OffsetCommitted, RegularExpressionResolved
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId

#: Partitions that a member holds: topic id -> partition -> epoch of the grant.
Grants = dict[TopicId, dict[int, int]]
#: Partitions that a member shall hold: topic id -> ascending partitions.
Target = dict[TopicId, tuple[int, ...]]

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
NO_PATTERNS: Final[dict[str, RegularExpressionResolved]] = {}


class ConsumerMember:
    """One member of a KIP-848 group: its subscription (record 5) and its partitions (record 8)."""

    __slots__ = (
        "assigned",
        "classic",
        "client_host",
        "client_id",
        "instance_id",
        "is_disconnected",
        "is_told_aside",
        "known_epoch",
        "list_awaited_ms",
        "member_epoch",
        "member_id",
        "pending_revocation",
        "previous_member_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "revoke_by",
        "server_assignor",
        "session_key",
        "state",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "untaken",
    )

    def __init__(self, group_id: str, member_id: str) -> None:
        #: Id of the member, unique in its group.
        self.member_id = member_id
        #: Instance id (KIP-345); `None`: a dynamic member.
        self.instance_id: str | None = None
        #: Rack of the client; `None`: not given.
        self.rack_id: str | None = None
        #: Client id.
        self.client_id = ""
        #: Host that the client connects from.
        self.client_host = ""
        #: Subscribed topic names, ascending, each once.
        self.subscribed_topic_names: tuple[str, ...] = ()
        #: Subscribed pattern; `None`: none.
        self.subscribed_topic_regex: str | None = None
        #: Rebalance timeout: how long the member may take to revoke partitions, ms.
        self.rebalance_timeout_ms = -1
        #: Server-side assignor that the member asks for; `None` leaves it to the broker.
        self.server_assignor: str | None = None
        #: Facts of its last JoinGroup; `None`: it speaks the consumer protocol.
        self.classic: ClassicMemberFacts | None = None
        #: Whether its connection is known to be closed and that matters (disconnect.py); a restart forgets it.
        self.is_disconnected = False
        #: Until when the coordinator waits for the member's list of its partitions, after it told it something new, ms;
        #: 0: the member has sent it. A restart forgets it.
        self.list_awaited_ms = 0
        #: Epoch that the member knew when it last got news beside its heartbeats, 0 if it never did; and whether it has
        #: not shown since that it knows the news. A restart forgets both.
        self.known_epoch = 0
        self.is_told_aside = False
        #: Epoch of the latest target that gave it something new, once it has reached it; -2: a static member that left
        #: for a while.
        self.member_epoch = 0
        #: The epoch before; a heartbeat with it comes from a member that did not get the last response.
        self.previous_member_epoch = -1
        #: State of the member on the way to its target.
        self.state = MemberState.STABLE
        #: Partitions that it may use; disjoint from `pending_revocation`.
        self.assigned: Grants = NO_GRANTS
        #: Partitions that it has been told to revoke and has not; empty unless UNREVOKED_PARTITIONS.
        self.pending_revocation: Grants = NO_GRANTS
        #: Deadlines of `pending_revocation`: topic id -> partition -> time, ms. After a restart the member has its
        #: whole rebalance timeout again.
        self.revoke_by: Grants = NO_GRANTS
        #: Partitions assigned while it still had some to revoke, until it reports that it owns them: topic id ->
        #: partition -> time until which the coordinator waits for that, ms.
        self.untaken: Grants = NO_GRANTS
        #: Key of the session's deadline, built once.
        self.session_key = TimerKey("session", group_id, member_id)


class WaitingMove(NamedTuple):
    """A move that has not begun: `keeper` has the partition for now, `taker` is to have it."""

    keeper: str
    taker: str


class Paced(NamedTuple):
    """Progress of paced moves.

    `until_ms`: the time by which the pace allows as many moves as have begun. `gap_ms`: the pause between two moves
    that this was counted with. Both 0 if no move has begun at a pace.
    """

    until_ms: float
    gap_ms: float


class Weights(NamedTuple):
    """Weights that order the waiting moves, and when they were measured, ms; 0: not yet."""

    of: Mapping[Place, int]
    weighed_ms: int


#: Weights of a group without waiting moves; shared.
NO_WEIGHTS: Final = Weights({}, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorFailure:
    """A failing assignor of the user's own.

    `error`: its latest error. `count`: its failures in a row. `retry_ms`: when it is asked again.
    """

    assignor: str
    error: str
    count: int
    retry_ms: int


class ConsumerGroup:
    """One KIP-848 group."""

    __slots__ = (
        "assignor_votes",
        "balance",
        "behind",
        "classic_count",
        "classic_metadata_bytes",
        "classic_protocols",
        "client_side",
        "computing",
        "epoch",
        "failure",
        "group_id",
        "has_held_back",
        "holders",
        "instance_ids",
        "members",
        "metadata_hash",
        "moves",
        "paced",
        "published",
        "regex_subscribers",
        "regexes",
        "submitted",
        "subscriptions",
        "target_epoch",
        "target_timestamp_ms",
        "targets",
        "topic_subscribers",
        "waiting",
        "weights",
        "window_opened_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: Group epoch (record 3): rises by one with each change of members, subscriptions or topics.
        self.epoch = 0
        #: Hash of the subscribed topics that `epoch` was set for.
        self.metadata_hash = 0
        #: Epoch that `targets` were computed for (record 6); at most `epoch`.
        self.target_epoch = 0
        #: When `targets` were computed; 0 while the group is empty.
        self.target_timestamp_ms = 0
        #: member id -> the partitions of its target (record 7); disjoint between members; no entry: no partitions.
        self.targets: dict[str, Target] = {}
        #: member id -> member.
        self.members: dict[str, ConsumerMember] = {}
        #: pattern -> the topics that it was resolved to (record 16); only patterns with subscribers.
        self.regexes = NO_PATTERNS
        #: Derived: topic id -> partition -> id of the member that has it assigned or pending revocation.
        self.holders: dict[TopicId, dict[int, str]] = {}
        #: Derived: instance id -> id of its member, also while that member is away.
        self.instance_ids = NO_NAMES
        #: Derived: set of topics subscribed to, by name or pattern -> number of members with exactly that set.
        self.subscriptions: dict[tuple[str, ...], int] = {}
        #: Derived: topic name -> number of members that subscribe to it, by name or pattern.
        self.topic_subscribers: dict[str, int] = {}
        #: Derived: pattern -> number of members that subscribe with it.
        self.regex_subscribers = NOBODY
        #: Derived: number of members that speak the classic protocol.
        self.classic_count = 0
        #: Derived: protocol name -> number of classic members that speak it; never 0.
        self.classic_protocols = NOBODY
        #: Derived: approximate memory of the protocols of all classic members, bytes.
        self.classic_metadata_bytes = 0
        #: Derived: ids of members that have another step to take, or are away; only these have to learn of a new epoch.
        self.behind: set[str] = set()
        #: Moves that wait for the pace, in order; their keepers have them in `assigned`. A restart finds them again.
        self.waiting: dict[Place, WaitingMove] = {}
        #: Weight of each of `waiting`: larger ones begin first. A restart forgets it.
        self.weights = NO_WEIGHTS
        #: Observed progress of open moves that no administrator submitted. A restart forgets it.
        self.moves: dict[Place, MoveFacts] = {}
        #: The latest submitted move of each partition (record 20,002), open or over.
        self.submitted: dict[Place, MoveFacts] = {}
        #: Whether moves may have waited, also before a restart: a mover may be behind at the target's own epoch.
        self.has_held_back = False
        #: Progress of moves at the pace. A restart forgets it.
        self.paced = Paced(0.0, 0.0)
        #: Published metadata of members (record 20,008); `None` if no member has ever published.
        self.published: MetadataLog | None = None
        #: Derived: name of an assignor -> number of members that ask for it; a restart keeps it.
        self.assignor_votes = NOBODY
        #: Derived: balance of `targets`, in a large group; `None` until it is needed. A restart forgets it.
        self.balance: TargetBalance | None = None
        #: State of client-side assignors; `None` until a member has one.
        self.client_side: ClientSide | None = None
        #: Input of the assignor that runs beside the coordinator; `None` if none runs. A restart forgets it.
        self.computing: ComputeTarget | None = None
        #: Failure of the assignor that delays the target; `None` if it works. A restart forgets it.
        self.failure: AssignorFailure | None = None
        #: Time of the first change of the group since its latest target; 0: none. A restart forgets it.
        self.window_opened_ms = 0


class OpenTransaction:
    """An open transaction of a producer, as one coordinator knows it."""

    __slots__ = ("group_ids", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        #: The newest epoch of the producer that wrote in it.
        self.producer_epoch = producer_epoch
        #: Groups for which offsets were committed in it, in the order of the log.
        self.group_ids: dict[str, None] = {}


class GroupsState:
    """The whole state of one shard; a group id is in at most one of `consumer` and `classic`."""

    __slots__ = (
        "classic",
        "clocks",
        "configs",
        "consumer",
        "holds",
        "image",
        "offsets",
        "ousted",
        "pending_offsets",
        "sharing",
        "transactions",
        "watches",
    )

    def __init__(self) -> None:
        #: The topics; version 0: the broker has not told them yet.
        self.image = TopicImage()
        #: group id -> KIP-848 group.
        self.consumer: dict[str, ConsumerGroup] = {}
        #: group id -> classic group.
        self.classic: dict[str, ClassicGroup] = {}
        #: group id -> topic -> partition -> the latest commit; no empty inner mapping.
        #: A group id that is only here is a simple group: a client commits without being a member.
        self.offsets: dict[str, dict[str, dict[int, OffsetCommitted]]] = {}
        #: group id -> (topic, partition) -> producer id -> the commit of its open transaction, in the order of the log;
        #: `None` where a later commit overrides it. No empty inner mapping.
        self.pending_offsets: dict[str, dict[tuple[str, int], dict[int, OffsetCommitted | None]]] = {}
        #: Producer id -> its open transaction in this shard.
        self.transactions: dict[int, OpenTransaction] = {}
        #: group id -> member id -> its held heartbeat; no empty inner mapping. A restart forgets them, as it closes
        #: their connections.
        self.holds: dict[str, dict[str, AnyHeartbeat]] = {}
        #: group id -> member id -> its watch, which gets news beside heartbeats; no empty inner mapping. A restart
        #: forgets them.
        self.watches: dict[str, dict[str, WatchMember]] = {}
        #: group id -> its own configs, also of groups that do not exist; no empty inner mapping.
        self.configs: dict[str, dict[str, str]] = {}
        #: group id -> clock of a static group with offline members or waiting new members.
        self.clocks: dict[str, StaticClock] = {}
        #: (group id, member id) of processes that lost their instance id to newer ones in static groups, the latest
        #: last. A restart forgets them.
        self.ousted: dict[tuple[str, str], None] = {}
        #: Derived: pool that keeps equal values once.
        self.sharing = Interning()

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has committed offsets, or offsets in an open transaction."""
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
    side = group.client_side
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
        "client_side": {} if side is None else {"assignors": dict(side.assignors), "said": dict(side.said)},
    }

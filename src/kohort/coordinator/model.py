"""What one coordinator knows: KIP-848 groups, classic groups, committed offsets and the picture of topics.

Laws: only `apply` functions mutate these objects. What is marked "derived" follows from the rest and is no part of
the durable state; `invariants.py` recomputes it.
Source: KIP-848 (the three epochs, member states), Apache Kafka's `__consumer_offsets` records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.coordinator.balance import TargetBalance
from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.clientside import ClientSide
from kohort.coordinator.commands import AnyHeartbeat, WatchMember
from kohort.coordinator.consumer.board import Board
from kohort.coordinator.decision import ComputeTarget, TimerKey
from kohort.coordinator.records import (
    ClassicMemberFacts,
    MemberState,
    MoveFacts,
    OffsetCommitted,
    RegularExpressionResolved,
)
from kohort.coordinator.sharing import Sharing
from kohort.coordinator.staticmode.clock import StaticClock
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId

#: Partitions that a member holds: topic id -> partition -> epoch of the grant.
Grants = dict[TopicId, dict[int, int]]
#: Partitions that a member shall hold: topic id -> ascending partitions.
Target = dict[TopicId, tuple[int, ...]]

#: Topic id and partition.
Place = tuple[TopicId, int]

#: What most members have yet to give up; shared, as no mapping of grants is ever changed in place.
NO_GRANTS: Final[Grants] = {}
#: The target of a member that has no record of one.
NO_TARGET: Final[Target] = {}
#: What most groups have no names, patterns, protocols and votes in; shared, never changed in place: `apply` puts a
#: mapping of the group's own in its place.
NOBODY: Final[dict[str, int]] = {}
NO_NAMES: Final[dict[str, str]] = {}
NO_PATTERNS: Final[dict[str, RegularExpressionResolved]] = {}


class ConsumerMember:
    """One member of a KIP-848 group: what it wants (record 5) and what it holds (record 8)."""

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
        #: Name of the member, unique in its group.
        self.member_id = member_id
        #: Static name; `None` is dynamic.
        self.instance_id: str | None = None
        #: Where it runs; `None` is not told.
        self.rack_id: str | None = None
        #: What the client calls itself.
        self.client_id = ""
        #: Where its connection comes from.
        self.client_host = ""
        #: Topics by name, ascending, each once.
        self.subscribed_topic_names: tuple[str, ...] = ()
        #: Topics by pattern; `None` is none.
        self.subscribed_topic_regex: str | None = None
        #: How long it may take to give partitions up.
        self.rebalance_timeout_ms = -1
        #: Assignor that it asks for; `None` leaves it to the broker.
        self.server_assignor: str | None = None
        #: What it said in its last JoinGroup; `None` speaks the consumer protocol.
        self.classic: ClassicMemberFacts | None = None
        #: Whether its connection is known to be gone and that matters (disconnect.py); a restart forgets it.
        self.is_disconnected = False
        #: Until when it is waited for what it owns, since it was told something new; 0: it has said so. A restart
        #: forgets it.
        self.list_awaited_ms = 0
        #: The epoch that it knew when it was told something beside its heartbeats last, 0 if it never was; and whether
        #: it has not shown since that it knows that. A restart forgets both.
        self.known_epoch = 0
        self.is_told_aside = False
        #: Epoch of the latest target that gave it something new, once it has reached it; -2 while it is away.
        self.member_epoch = 0
        #: The epoch before; a heartbeat with it is one whose answer was lost.
        self.previous_member_epoch = -1
        #: Where it is on the way to its target.
        self.state = MemberState.STABLE
        #: Partitions that it may use; disjoint from `pending_revocation`.
        self.assigned: Grants = NO_GRANTS
        #: Partitions that it has been told to give up and has not; empty unless UNREVOKED_PARTITIONS.
        self.pending_revocation: Grants = NO_GRANTS
        #: When it has to have given up each of `pending_revocation`: topic id -> partition -> time, ms. A restart gives
        #: it all of its time anew.
        self.revoke_by: Grants = NO_GRANTS
        #: What it was given while it had something to give up, until it says that it owns it: topic id -> partition ->
        #: time until which that is waited for, ms.
        self.untaken: Grants = NO_GRANTS
        #: Key of its session's deadline, made once.
        self.session_key = TimerKey("session", group_id, member_id)


class WaitingMove(NamedTuple):
    """A move that has not begun: who keeps the partition for now, and who shall have it."""

    keeper: str
    taker: str


class Paced(NamedTuple):
    """The time by which a pace allows as many moves as have begun, ms, and the one between two moves that this was
    counted with; 0 if none has begun at a pace."""

    until_ms: float
    gap_ms: float


class Weights(NamedTuple):
    """What the order of moves goes by, and when it was looked at, ms; 0: not yet."""

    of: Mapping[Place, int]
    weighed_ms: int


#: Of a group in which no move waits; shared.
NO_WEIGHTS: Final = Weights({}, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorFailure:
    """An assignor of the user's own does not do its work: `error` is its latest, `count` how often it failed in a row.

    `retry_ms`: when it is asked again.
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
        #: member id -> what it shall hold (record 7); disjoint between members; no entry means nothing.
        self.targets: dict[str, Target] = {}
        #: member id -> member.
        self.members: dict[str, ConsumerMember] = {}
        #: pattern -> the topics that it was resolved to (record 16); patterns that nobody subscribes to are forgotten.
        self.regexes = NO_PATTERNS
        #: Derived: topic id -> partition -> id of the member that has it assigned or pending revocation.
        self.holders: dict[TopicId, dict[int, str]] = {}
        #: Derived: static name -> id of the member that bears it, also while that member is away.
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
        #: Derived: what the protocols of all classic members take in memory, roughly.
        self.classic_metadata_bytes = 0
        #: Derived: ids of members that have another step to take, or are away: nobody else has to hear of a new epoch.
        self.behind: set[str] = set()
        #: Moves that the pace holds back, in their order; their keepers have them in `assigned`. A restart finds them.
        self.waiting: dict[Place, WaitingMove] = {}
        #: How much speaks for each of `waiting` to begin before others. A restart forgets it.
        self.weights = NO_WEIGHTS
        #: What was seen of open moves that nobody asked for. A restart forgets it.
        self.moves: dict[Place, MoveFacts] = {}
        #: The latest move of each partition that somebody asked for (record 20,002), open or over.
        self.submitted: dict[Place, MoveFacts] = {}
        #: Whether moves may have waited, be it before a restart: whose move begins is behind at its target's epoch.
        self.has_held_back = False
        #: How many moves have begun at the pace. A restart forgets it.
        self.paced = Paced(0.0, 0.0)
        #: What members publish (record 20,008); `None` if nobody ever did.
        self.published: Board | None = None
        #: Derived: name of an assignor -> number of members that ask for it; a restart keeps it.
        self.assignor_votes = NOBODY
        #: Derived: how even `targets` are, in a large group; `None` if nobody asked yet. A restart forgets it.
        self.balance: TargetBalance | None = None
        #: What has to do with assignors that members run themselves; `None` until somebody has one.
        self.client_side: ClientSide | None = None
        #: What an assignor is working on beside the coordinator; `None` if none is. A restart forgets it.
        self.computing: ComputeTarget | None = None
        #: Why the target is older than the group, if its assignor fails; `None` if it does not. A restart forgets it.
        self.failure: AssignorFailure | None = None
        #: When the group changed first since its latest target was computed; 0 if it did not. A restart forgets it.
        self.window_opened_ms = 0


class OpenTransaction:
    """What one coordinator knows of a producer's transaction."""

    __slots__ = ("group_ids", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        #: The newest incarnation of the producer that wrote in it.
        self.producer_epoch = producer_epoch
        #: Groups for which offsets were committed in it, in the order of the log.
        self.group_ids: dict[str, None] = {}


class GroupsState:
    """Everything that one shard knows; a group id is in at most one of `consumer` and `classic`."""

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
        #: The topics; version 0 means that nobody told yet.
        self.image = TopicImage()
        #: group id -> KIP-848 group.
        self.consumer: dict[str, ConsumerGroup] = {}
        #: group id -> classic group.
        self.classic: dict[str, ClassicGroup] = {}
        #: group id -> topic -> partition -> the latest commit; no empty inner mapping.
        #: A group id that is only here is a simple group: somebody commits without being a member.
        self.offsets: dict[str, dict[str, dict[int, OffsetCommitted]]] = {}
        #: group id -> (topic, partition) -> producer id -> the commit of its open transaction, in the order of the log;
        #: `None` where a commit that counts came after it. No empty inner mapping.
        self.pending_offsets: dict[str, dict[tuple[str, int], dict[int, OffsetCommitted | None]]] = {}
        #: Producer id -> its transaction that is open here.
        self.transactions: dict[int, OpenTransaction] = {}
        #: group id -> member id -> its heartbeat whose answer waits for news; no empty inner mapping. A restart forgets
        #: them, as their connections go.
        self.holds: dict[str, dict[str, AnyHeartbeat]] = {}
        #: group id -> member id -> who is to be told news of it beside its heartbeats; no empty inner mapping. A
        #: restart forgets them.
        self.watches: dict[str, dict[str, WatchMember]] = {}
        #: group id -> the configs that were set for it, also for groups that are not there; no empty inner mapping.
        self.configs: dict[str, dict[str, str]] = {}
        #: group id -> the clock of a static group of which somebody is offline or new members wait.
        self.clocks: dict[str, StaticClock] = {}
        #: (group id, member id) of processes that lost their names to younger ones in static groups, the latest last.
        #: A restart forgets them.
        self.ousted: dict[tuple[str, str], None] = {}
        #: Derived: what equal values are kept once by.
        self.sharing = Sharing()

    def has_offsets(self, group_id: str) -> bool:
        """Whether anything is committed for the group, or is about to be by a transaction."""
        return group_id in self.offsets or group_id in self.pending_offsets

"""The port through which the APIs reach the group coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kohort.broker.connections.request import Asker, Request
from kohort.broker.groups.runtime import Translate
from kohort.broker.groups.shard_log import GroupLimit
from kohort.coordinator.commands import AnyHeartbeat, Command, ConsumerGroupHeartbeat, GroupCommand, WatchMember
from kohort.coordinator.journal_events.open_rebalances import MemberKey, Reads
from kohort.coordinator.journal_events.reporter import MemberSigns
from kohort.coordinator.model import GroupOffsets
from kohort.coordinator.records.types import Grants
from kohort.ids import RequestToken, format_uuid, random_uuid
from kohort.journal.ring import Journal
from kohort.journal.words import Partition


class Coordination(Protocol):
    """The coordinator as one broker reaches it: `Runtime`, or a cluster's coordinators on this broker."""

    @property
    def journal(self) -> Journal:
        """The journal of all groups."""

    @property
    def group_limit(self) -> GroupLimit:
        """The limit of groups, with its counter."""

    @property
    def shard_count(self) -> int:
        """The number of shards."""

    def serves(self, group_id: str) -> bool:
        """Whether the log of a group could be read whole."""

    def coordinates(self, group_id: str) -> bool:
        """Whether this broker coordinates a group."""

    @property
    def index_of(self) -> Callable[[str], int]:
        """Returns the partition of `__consumer_offsets` that keeps a group."""

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's KIP-848 members, ms."""

    def next_token(self) -> RequestToken:
        """Return a number that no earlier request has; it also serves as its cause."""

    def answer(self, request: Asker, command: GroupCommand, translate: Translate) -> None:
        """Carry out a command; answer `request` with the translated reply once it is durable."""

    def release(self, command: AnyHeartbeat, is_cut: bool) -> None:
        """Answer a held heartbeat; `is_cut`: another request of its client waits behind it."""

    def abandon(self, command: AnyHeartbeat | WatchMember) -> None:
        """Drop a held heartbeat, or the watch of a member, after its connection has closed."""

    def hold(self, request: Request, command: ConsumerGroupHeartbeat, translate: Translate) -> bool:
        """Hold a heartbeat that repeats a held one; `False` if it has to be parsed anew."""

    def renew(self, command: ConsumerGroupHeartbeat) -> int | None:
        """Carry out a heartbeat that repeats an answered one; `None` if it cannot be answered at once."""

    def ask(self, command: GroupCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command; call `on_reply` with its reply once it is durable."""

    def ask_shard(self, index: int, token: RequestToken, command: Command, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command that concerns a whole shard."""

    @property
    def reads(self) -> Reads:
        """The record of the members' latest reads of partitions."""

    def begin_to_read(self, keys: Iterable[MemberKey], asked_for: Sequence[Partition]) -> None:
        """Note that a fetch asks for partitions, which may be new for one of these members."""

    @property
    def hides_topics(self) -> bool:
        """Whether topics are hidden from some clients."""

    def pattern_sent(self, command: ConsumerGroupHeartbeat) -> None:
        """Tell the coordinator what the sender of an accepted heartbeat with a pattern may see."""

    def counts_fetches(self, group_id: str) -> bool:
        """Whether fetches count as heartbeats in a group, if they say whose they are."""

    def lease_ms(self, group_id: str) -> int:
        """Return how long a grant lasts in a group, ms; 0: it enforces no ownership."""

    def assignment_of(self, group_id: str, member_id: str) -> tuple[int, Grants] | None:
        """Return the epoch and the partitions of a KIP-848 member that speaks that protocol; `None`: it is none."""

    def is_member(self, group_id: str, member_id: str) -> bool:
        """Whether a group has a member of that id, in either protocol."""

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """Return the committed offsets of a group, and those of open transactions, to be read."""

    def member_signs(self, group_id: str, member_id: str) -> MemberSigns | None:
        """Return the latest signs of a member; `None`: the group has no such member."""

    def member_fetched(self, group_id: str, member_id: str, *, epoch: int = -1, is_over: bool = False) -> int:
        """Note a fetch of a member; return for how many milliseconds its later fetches need not be noted."""

    def member_disconnected(self, group_id: str, member_id: str) -> None:
        """Tell the coordinator that a member's last connection is closed."""


# Ids of group members that join without one.


def new_member_id(client_id: str) -> str:
    """Make a unique member id from the client id."""
    return f"{client_id}-{format_uuid(random_uuid())}"

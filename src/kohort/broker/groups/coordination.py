"""What the APIs may ask of the groups' coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kohort.broker.connections.request import Asker, Request
    from kohort.broker.groups.grouproom import GroupRoom
    from kohort.broker.groups.runtime import Translate
    from kohort.coordinator.commands import (
        AnyHeartbeat,
        Command,
        ConsumerGroupHeartbeat,
        GroupCommand,
        ReplyBody,
        WatchMember,
    )
    from kohort.coordinator.events.reads import MemberKey, Reads
    from kohort.ids import RequestToken
    from kohort.journal.ring import Journal
    from kohort.journal.words import Partition


class Coordination(Protocol):
    """The coordinator as one broker reaches it: `Runtime`, or that of a cluster as far as it is at this broker."""

    @property
    def journal(self) -> Journal:
        """What happened to every group."""
        ...

    @property
    def room(self) -> GroupRoom:
        """How many groups there may be."""
        ...

    @property
    def shard_count(self) -> int:
        """How many shards there are."""
        ...

    def serves(self, group_id: str) -> bool:
        """Whether the log of a group is known whole."""
        ...

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a KIP-848 member of a group may be silent."""
        ...

    def next_token(self) -> RequestToken:
        """A number that no earlier request has; also serves as its cause."""
        ...

    def answer(self, request: Asker, command: GroupCommand, translate: Translate) -> None:
        """Carry out a command; its reply, translated, answers `request` once it is durable."""
        ...

    def release(self, command: AnyHeartbeat, is_cut: bool) -> None:
        """Answer a heartbeat that is held; `is_cut`: something else of its client waits for it."""
        ...

    def abandon(self, command: AnyHeartbeat | WatchMember) -> None:
        """The connection of a heartbeat that is held, or of who watches a member, is gone."""
        ...

    def hold(self, request: Request, command: ConsumerGroupHeartbeat, translate: Translate) -> bool:
        """Hold a heartbeat that was held before, word for word; `False` if it is to be read anew."""
        ...

    def renew(self, command: ConsumerGroupHeartbeat) -> int | None:
        """Carry out a heartbeat that was answered before, word for word; `None` if it cannot be answered at once."""
        ...

    def ask(self, command: GroupCommand, on_reply: Callable[[ReplyBody], None]) -> None:
        """Carry out a command; its reply is handed to `on_reply` once it is durable."""
        ...

    def ask_shard(
        self, index: int, token: RequestToken, command: Command, on_reply: Callable[[ReplyBody], None]
    ) -> None:
        """Carry out a command that concerns a whole shard."""
        ...

    @property
    def reads(self) -> Reads:
        """By whom partitions were read last."""
        ...

    def begin_to_read(self, keys: Iterable[MemberKey], asked_for: Sequence[Partition]) -> None:
        """A fetch asks for partitions; for these members, one of which it may be of, they may be new."""
        ...

    def member_disconnected(self, group_id: str, member_id: str) -> None:
        """The connection by which a member was heard of last is closed."""
        ...

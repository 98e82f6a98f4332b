"""The interface of an assignor: one function from present owners and subscriptions to target owners.

Laws: an assignor is pure and deterministic, and leaves its input alone. Equal input gives equal output: only then
does a replay of the journal lead to the same target.
Source: KIP-848 (server-side assignors); requirement H8: ownership is `owner[partition]`, an array of C ints.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from kohort.assign.ownership import PartitionSpace

#: No limit to the number of moves.
UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignableMember:
    """One member; its number is its place in `Assignable.members`."""

    member_id: str
    #: Static name, `None` if it is dynamic.
    instance_id: str | None = None
    #: Where it runs, `None` if it did not say.
    rack_id: str | None = None
    #: What it tells the assignor, where members run that themselves: its metadata, their version, and why it wants a
    #: computation, 0 if it does not.
    metadata: bytes = b""
    metadata_version: int = 0
    reason: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignable:
    """One group, as an assignor sees it.

    `space`: the partitions of every topic that a member subscribes to, topics in the order of their names; `owner` and
    the answer are arrays over it. `topic_names`: by topic of `space`. `members`: in the order of their ids.
    `subscribers`: by topic of `space`, the ascending numbers of the members that subscribe to it, never empty; topics
    of the same subscribers share one object, as `subscribers.subscribers_by_topic` makes it, or cost more time.
    `owner`: partition -> number of the member that shall own it by the former target, -1: none.
    `max_moves`: how many partitions may go from one living owner to another, `UNLIMITED` is as many as balance needs.
    `imbalance`: by how many partitions two members with the same choice may differ beyond 1 before it is worth a move.
    """

    space: PartitionSpace
    topic_names: tuple[str, ...]
    members: tuple[AssignableMember, ...]
    subscribers: tuple[Sequence[int], ...]
    owner: array[int]
    max_moves: int = UNLIMITED
    imbalance: int = 0

    @property
    def is_homogeneous(self) -> bool:
        """Whether every member subscribes to every topic."""
        return all(len(members) == len(self.members) for members in self.subscribers)


@runtime_checkable
class Assignor(Protocol):
    """An assignor named in `group.consumer.assignors`; your own are entry points of `kohort.assignors`."""

    @property
    def name(self) -> str:
        """Return the name that members and brokers use."""

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: an array like `group.owner`, each a subscriber of the partition's topic.

        `moves.find_fault` says whether an answer is so. Where `max_moves` held moves back, another computation on
        what came out makes the next ones; nothing is left to do when it gives what it got.
        """

"""The interface of an assignor: one function from present owners and subscriptions to target owners.

Laws: an assignor is pure and deterministic, and does not change its input. Equal input gives equal output, so that a
replay of the journal leads to the same target.
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
    """One member; arrays refer to it by its index in `Assignable.members`."""

    member_id: str
    #: `group.instance.id`, `None` for a dynamic member.
    instance_id: str | None = None
    #: Rack of the member, `None` if it sent none.
    rack_id: str | None = None
    #: For client-side assignors: the metadata that the member sent for the assignor, their version, and the reason code
    #: of its request for a computation, 0 if it requests none.
    metadata: bytes = b""
    metadata_version: int = 0
    reason: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignable:
    """One group: the input of an assignor.

    `space`: the partitions of every subscribed topic, topics ordered by name; `owner` and the result are arrays over
    it. `topic_names`: topic of `space` -> name. `members`: ordered by member id.
    `subscribers`: topic of `space` -> indexes of its subscribers, ascending, never empty. Topics with equal subscribers
    should share one object, as `subscribers.subscribers_by_topic` returns it: assignors are slower otherwise.
    `owner`: partition -> index of its owner in the previous target; -1: none.
    `max_moves`: most partitions that may move between two present members; `UNLIMITED`: as many as balance needs.
    `imbalance`: tolerated difference, beyond 1, between the loads of members that subscribe to the same topics.
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
    """An assignor of `group.consumer.assignors`; your own are entry points of group `kohort.assignors`."""

    @property
    def name(self) -> str:
        """Return the name that members and brokers use."""

    def assign(self, group: Assignable) -> array[int]:
        """Return the new owners: an array like `group.owner`, each a subscriber of the partition's topic.

        `moves.find_fault` validates a result. Where `max_moves` left moves out, another call with this result as
        `owner` makes the next ones. The target is reached when a call returns its `owner` unchanged.
        """

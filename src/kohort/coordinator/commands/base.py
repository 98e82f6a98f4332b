"""Base classes of all commands, and the replies that any of them may get.

Laws: a command carries its identity and chance (request token, cause, fresh ids) with it.
Source: architecture rules 5 and 9.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.errors import ErrorCode
from kohort.ids import CauseId, RequestToken, TopicId

#: Partitions by topic id, as the KIP-848 heartbeat lists them: topic id -> ascending partitions.
Partitions = dict[TopicId, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One stimulus; everything that follows from it carries its `cause`."""

    cause: CauseId


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommand(Command):
    """A request about one group, answered by a `Reply` that names `request`."""

    request: RequestToken
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Reply to a command that succeeded and has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Reply to a command that was refused as a whole; nothing was changed."""

    code: ErrorCode
    message: str | None = None

"""What the admin client returns of moves of partitions between members."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.errorcodes import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedMove:
    """What a coordinator made of one move that was asked for.

    `move_id`: how the move is called in `GroupMove`; empty where it was refused, and where nobody has to give the
    partition up for it. `code` is NONE where it was taken, otherwise `message` says why it was not.
    """

    topic: str
    partition: int
    to_member_id: str
    move_id: str
    code: ErrorCode
    message: str | None

    @property
    def is_taken(self) -> bool:
        """Whether the member shall have the partition."""
        return self.code is ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """A partition on its way from one member to another.

    `phase`: "waiting" for the pace; "revoking", its owner is to hear of it; "fenced", that one may not use it any more;
    "committed", it has committed and given it up; "granted", the new owner has it. `cause`: why it moves. Times of the
    coordinator in milliseconds since 1970; `None`: it is not so far yet, or a restart has forgotten it, as it does of
    moves that nobody asked for.
    """

    move_id: str
    topic: str
    partition: int
    from_member_id: str
    to_member_id: str
    phase: str
    cause: str
    submitted_ms: int | None
    begun_ms: int | None
    fenced_ms: int | None
    committed_ms: int | None
    granted_ms: int | None

    @property
    def is_open(self) -> bool:
        """Whether it is on its way."""
        return self.granted_ms is None

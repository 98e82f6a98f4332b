"""Moves of partitions between members, and the requests for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.base.error_codes import ErrorCode
from kohort.base.values import from_row, or_none, value
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_moves import DescribedMove
from kohort.wire.messages.submit_moves import MoveToSubmit, SubmitMovesResponse


@value
class SubmittedMove:
    """The coordinator's response to one requested move.

    `move_id`: the id of the move in `GroupMove`; empty if the move was refused, or if no member has to give the
    partition up for it. `code`: NONE if the move was accepted, otherwise `message` has the reason for its refusal.
    """

    topic: str
    partition: int
    to_member_id: str
    move_id: str
    code: ErrorCode
    message: str | None

    @property
    def is_taken(self) -> bool:
        """Whether the move was accepted."""
        return self.code is ErrorCode.NONE


@value
class GroupMove:
    """A move of a partition from one member to another.

    `phase`: "waiting" for the group's rate of moves; "revoking": the owner is to be notified; "fenced": the owner may
    not use the partition any more; "committed": the owner has committed and given it up; "granted": the new owner has
    it. `cause`: the reason for the move. Times are the coordinator's, milliseconds since 1970; `None` if the phase is
    not reached, or after a restart of the broker, which keeps the times of requested moves only.
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
        """Whether the move is still in progress."""
        return self.granted_ms is None


#: A request has no more moves than this.
MOST_MOVES: Final = 10_000
_INT32: Final = range(-(2**31), 2**31)


def wanted_moves(moves: Mapping[TopicPartition, str]) -> list[MoveToSubmit]:
    """Check requested moves, and build the rows of the request.

    Raises:
        TypeError: a key is not a partition, or a value not a member id.
        ConfigError: there are more moves than a coordinator accepts in one request.
    """
    if not isinstance(moves, Mapping):
        raise TypeError(f"moves are {type(moves).__name__}; expected a mapping of partitions to ids of members")
    if len(moves) > MOST_MOVES:
        raise ConfigError(f"{len(moves)} moves cannot be submitted at once: at most {MOST_MOVES} are expected")
    return [_wanted(partition, member_id) for partition, member_id in moves.items()]


def _wanted(partition: object, member_id: object) -> MoveToSubmit:
    if not isinstance(member_id, str):
        raise TypeError(f"{member_id!r} is no member id; expected a text")
    match partition:
        case (str(topic), int(number)) if not isinstance(number, bool):
            if number not in _INT32:
                raise ConfigError(f"{topic}-{number} is no partition: no number is that large")
            return MoveToSubmit(topic=topic, partition=number, to_member_id=member_id)
    raise TypeError(f"{partition!r} is no partition; expected a TopicPartition, or (topic, number)")


def awaited_moves(moves: Iterable[SubmittedMove]) -> dict[TopicPartition, str]:
    """Return the new owner of each partition whose move was accepted.

    Raises:
        TypeError: `moves` are not submitted moves.
    """
    if not isinstance(moves, Iterable):
        raise TypeError(f"{moves!r} are no moves; expected what submit_moves has returned")
    found = list(moves)
    wrong = next((each for each in found if not isinstance(each, SubmittedMove)), None)
    if wrong is not None:
        raise TypeError(f"{wrong!r} is no submitted move; expected what submit_moves or switch_partition has returned")
    return {TopicPartition(move.topic, move.partition): move.to_member_id for move in found if move.is_taken}


def submitted_moves(asked: Sequence[MoveToSubmit], response: SubmitMovesResponse) -> list[SubmittedMove]:
    """Read the results of moves, in the order of the request."""
    return [
        from_row(
            SubmittedMove,
            result,
            to_member_id=move.to_member_id,
            code=ErrorCode.of(result.error_code),
            message=result.error_message,
        )
        for move, result in zip(asked, response.results, strict=True)
    ]


def group_move(row: DescribedMove) -> GroupMove:
    """Read one move."""
    times = {name: or_none(getattr(row, name)) for name in GroupMove.__annotations__ if name.endswith("_ms")}
    return from_row(GroupMove, row, **times)

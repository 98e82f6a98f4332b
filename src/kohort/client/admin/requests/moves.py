"""Moves of partitions as the admin client asks for them and shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.client.admin.results.moves import GroupMove, SubmittedMove
from kohort.errors import ConfigError, ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_moves import DescribedMove
from kohort.wire.messages.submit_moves import MoveToSubmit, SubmitMovesResponse

#: A request has no more moves than this.
MOST_MOVES: Final = 10_000
_INT32: Final = range(-(2**31), 2**31)


def wanted_moves(moves: Mapping[TopicPartition, str]) -> list[MoveToSubmit]:
    """What is asked for, checked.

    Raises:
        TypeError: something is no partition, or no member id.
        ConfigError: there are more than a coordinator takes at once.
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
    """Partition -> the member that shall have it, of those that were taken.

    Raises:
        TypeError: these are no submitted moves.
    """
    if not isinstance(moves, Iterable):
        raise TypeError(f"{moves!r} are no moves; expected what submit_moves has returned")
    found = list(moves)
    wrong = next((each for each in found if not isinstance(each, SubmittedMove)), None)
    if wrong is not None:
        raise TypeError(f"{wrong!r} is no submitted move; expected what submit_moves or switch_partition has returned")
    return {TopicPartition(move.topic, move.partition): move.to_member_id for move in found if move.is_taken}


def submitted_moves(asked: Sequence[MoveToSubmit], response: SubmitMovesResponse) -> list[SubmittedMove]:
    """What became of each, in the order in which they were asked for."""
    return [
        SubmittedMove(
            topic=result.topic,
            partition=result.partition,
            to_member_id=move.to_member_id,
            move_id=result.move_id,
            code=ErrorCode.of(result.error_code),
            message=result.error_message,
        )
        for move, result in zip(asked, response.results, strict=True)
    ]


def group_move(row: DescribedMove) -> GroupMove:
    """One move."""
    return GroupMove(
        move_id=row.move_id,
        topic=row.topic,
        partition=row.partition,
        from_member_id=row.from_member_id,
        to_member_id=row.to_member_id,
        phase=row.phase,
        cause=row.cause,
        submitted_ms=_time(row.submitted_ms),
        begun_ms=_time(row.begun_ms),
        fenced_ms=_time(row.fenced_ms),
        committed_ms=_time(row.committed_ms),
        granted_ms=_time(row.granted_ms),
    )


def _time(milliseconds: int) -> int | None:
    return milliseconds if milliseconds >= 0 else None

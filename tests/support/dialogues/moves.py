"""Moves of partitions in dialogues with a coordinator: submitted, and described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kohort.coordinator.commands import admin as asked
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue


def submit(group: GroupDialogue, moves: Mapping[int, str] | Iterable[tuple[str, int, str]], **fields: Any) -> Answer:
    """Ask for moves: partition of "t" -> member, or (topic, partition, member)."""
    named = [("t", *move) for move in moves.items()] if isinstance(moves, Mapping) else moves
    fields.setdefault("group_id", group.group_id)
    asked_moves = tuple(asked.AskedMove(topic=t, partition=p, to_member_id=m) for t, p, m in named)
    return group.ask(asked.SubmitMoves(cause=group.cause(), request=group.request(), moves=asked_moves, **fields))


def answers(answer: Answer) -> list[tuple[str, int, str, ErrorCode, str | None]]:
    """(topic, partition, move id, code, message) of each submitted move."""
    results = answer.body_as(asked.SubmitMovesReply).results
    return [(each.topic, each.partition, each.move_id, each.code, each.message) for each in results]


def statuses(group: GroupDialogue) -> list[asked.MoveStatus]:
    """Every move that the coordinator tells of."""
    answer = group.ask(asked.DescribeMoves(cause=group.cause(), request=group.request(), group_id=group.group_id))
    return list(answer.body_as(asked.DescribeMovesReply).moves)


def describe(group: GroupDialogue) -> list[tuple[str, str, str, str]]:
    """(move id, from, to, phase) of each move that the coordinator tells of."""
    return [(each.move_id, each.from_member_id, each.to_member_id, each.phase) for each in statuses(group)]

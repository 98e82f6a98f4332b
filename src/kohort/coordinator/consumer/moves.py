"""Moves of partitions between members of a KIP-848 group: submitted ones, and the progress of all.

The id of a move is its partition and the epoch at which the old owner was assigned it. An assignment ends only once, so
the id is unique, and a restart derives the same id.

Laws: the open moves follow from targets and assignments alone; `track_moves` keeps their progress, and the submitted
moves that have ended. Nothing here computes a target.
Source: requirements H3 and H9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from kohort.base.values import from_row
from kohort.coordinator.commands import admin
from kohort.coordinator.consumer import describe, static, subscription_metadata
from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.coordinator.consumer.assignment.volatile import TargetBalanceKept
from kohort.coordinator.consumer.reconciliation import move_throttle, track_moves
from kohort.coordinator.decision import Decision, Disarm, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, GroupsState, Place
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId

#: Phases of a move, in order: it waits for the pace; the old owner has yet to learn of it; the old owner may not use
#: the partition any more; the old owner has committed and revoked it; the new owner has it.
PHASES: Final = ("waiting", "revoking", "fenced", "committed", "granted")
#: Causes of a move.
BY_ASSIGNOR: Final = "assignment"
BY_ADMINISTRATOR: Final = "administrator moved partitions"


def move_id(topic: str, partition: int, granted_epoch: int) -> str:
    """Return the id of a move: its partition, and the epoch at which the old owner was assigned it."""
    return f"{topic}-{partition}@{granted_epoch}"


def decide_describe_moves(groups: GroupsState, command: admin.DescribeMoves) -> Decision:
    """Describe the open moves, and the submitted moves that have ended, of a KIP-848 group."""
    found = tuple(describe_moves(groups, describe.find_moving(groups, command.group_id)))
    return Decision(effects=(Reply(command.request, admin.DescribeMovesReply(moves=found)),))


def describe_moves(groups: GroupsState, group: ConsumerGroup) -> Iterator[admin.MoveStatus]:
    """Yield open moves by topic and partition, then ended submitted moves, the latest first."""
    names = {topic_id: known_topic.name for topic_id, known_topic in groups.image.by_id.items()}
    found = [(names[place[0]], place, move) for place, move in _find_open(group) if place[0] in names]
    for topic, place, move in sorted(found, key=lambda each: (each[0], each[1][1])):
        is_submitted = group.submitted.get(place) is move
        yield _status(topic, place[1], move, _phase(group, place), is_submitted=is_submitted)
    ended = [(place, move) for place, move in group.submitted.items() if move.granted_ms >= 0 and place[0] in names]
    for place, move in sorted(ended, key=lambda each: (-each[1].granted_ms, names[each[0][0]], each[0][1])):
        yield _status(names[place[0]], place[1], move, "granted", is_submitted=True)


def _find_open(group: ConsumerGroup) -> Iterator[tuple[Place, facts.MoveFacts]]:
    """Yield open and deferred moves; a move from before a restart has no times."""
    takers = {move.taker for move in group.waiting.values()} & group.members.keys()
    for member_id in group.behind | takers:
        for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items():
            holders = group.holders.get(topic_id, {})
            for partition in partitions:
                place, holder = (topic_id, partition), holders.get(partition)
                if holder == member_id:
                    continue
                known = group.submitted.get(place)
                if known is None or known.granted_ms >= 0:
                    known = group.moves.get(place)
                if known is not None:
                    yield place, known
                elif holder is not None:
                    granted = track_moves.granted_epoch_of(group.members[holder], place)
                    yield place, facts.MoveFacts(granted, holder, member_id, group.target_timestamp_ms or -1)


def _status(topic: str, partition: int, move: facts.MoveFacts, phase: str, *, is_submitted: bool) -> admin.MoveStatus:
    return from_row(
        admin.MoveStatus,
        move,
        move_id=move_id(topic, partition, move.granted_epoch),
        topic=topic,
        partition=partition,
        phase=phase,
        cause=BY_ADMINISTRATOR if is_submitted else BY_ASSIGNOR,
        # After a restart it may wait once more.
        begun_ms=-1 if phase == "waiting" else move.begun_ms,
    )


def _phase(group: ConsumerGroup, place: Place) -> str:
    topic_id, partition = place
    holder = group.members.get(group.holders.get(topic_id, {}).get(partition, ""))
    if place in group.waiting:
        return "waiting"
    if holder is None:
        return "committed"
    return "fenced" if partition in holder.pending_revocation.get(topic_id, {}) else "revoking"


# Moves that an administrator, or a scheduler outside, submits.
#
# The targets of the members concerned change at once, with an epoch of their own; from there a partition takes the way
# of every other move.
#
# Laws: no assignor computed a submitted target, so it has no time of computation: it stays until members or topics
# change, and no step to an even target follows it. The moves of a request are independent; a refused one changes
# nothing.
# Source: requirement H9.

#: Most moves of one request.
MOST_MOVES: Final = 10_000


def decide_submit(groups: GroupsState, command: admin.SubmitMoves, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Change targets according to submitted moves.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, INCONSISTENT_GROUP_PROTOCOL (a classic group), INVALID_REQUEST (too many moves),
            REBALANCE_IN_PROGRESS (a target is about to be computed that would undo them).
    """
    group = describe.find_moving(groups, command.group_id)
    if len(command.moves) > MOST_MOVES:
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"{len(command.moves)} moves were submitted at once; {MOST_MOVES} are possible"
        )
    # The coming target would undo the moves.
    if group.target_epoch < group.epoch:
        raise Refused(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"the group {group.group_id} is changing, and a target is about to be computed; submit the moves again",
        )
    named = Counter((move.topic, move.partition) for move in command.moves)
    topics = {move.topic for move in command.moves}
    owners = _target_owners(group, groups.image, topics)
    answers: list[admin.MoveAnswer] = []
    taken: dict[Place, str] = {}
    for move in command.moves:
        code, message = _check(group, groups.image, move, times_named=named[move.topic, move.partition])
        name = ""
        if code == ErrorCode.NONE:
            place = groups.image.by_name[move.topic].topic_id, move.partition
            name = _name_of(group, move, place)
            # A move to the present target owner changes nothing.
            if owners.get(place) != move.to_member_id:
                taken[place] = move.to_member_id
        answers.append(
            admin.MoveAnswer(topic=move.topic, partition=move.partition, move_id=name, code=code, message=message)
        )
    reply = Reply(command.request, admin.SubmitMovesReply(results=tuple(answers)))
    if not taken or command.validate_only:
        return Decision(effects=(reply,))
    records = _build_switch(group, taken, owners)
    held_back, paced = move_throttle.hold_back(group, groups.image, settings, records, now_ms=now_ms)
    # The epoch of the target comes last: by it the target is complete.
    return Decision((*records[:-1], *held_back, records[-1]), (reply, Disarm(assignment_key(group.group_id)), *paced))


def _check(
    group: ConsumerGroup, image: TopicImage, move: admin.AskedMove, *, times_named: int
) -> tuple[ErrorCode, str | None]:
    """Check a submitted move; return NONE, or the error and its reason."""
    partition = f"{move.topic}-{move.partition}"
    topic = image.by_name.get(move.topic)
    if topic is None or not 0 <= move.partition < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
    if times_named > 1:
        return ErrorCode.INVALID_REQUEST, f"the partition {partition} is named {times_named} times; name it once"
    member = group.members.get(move.to_member_id)
    if member is None:
        why = f"the member {move.to_member_id} is not in the group {group.group_id}"
        return ErrorCode.UNKNOWN_MEMBER_ID, why
    if static.is_away(member):
        why = f"the member {move.to_member_id} left for a while; give {partition} to one that is there"
        return ErrorCode.INVALID_REQUEST, why
    if move.topic not in subscription_metadata.topics_of(group, member):
        why = f"the member {move.to_member_id} does not subscribe to {move.topic}; give {partition} to one that does"
        return ErrorCode.INVALID_REQUEST, why
    return ErrorCode.NONE, None


def _name_of(group: ConsumerGroup, move: admin.AskedMove, place: Place) -> str:
    """Return the id of the move; empty if no member has to revoke the partition for it."""
    topic_id, partition = place
    holder_id = group.holders.get(topic_id, {}).get(partition, move.to_member_id)
    if holder_id == move.to_member_id:
        return ""
    return move_id(move.topic, move.partition, track_moves.granted_epoch_of(group.members[holder_id], place))


def _target_owners(group: ConsumerGroup, image: TopicImage, topics: set[str]) -> dict[Place, str]:
    """Return the present target owners of the partitions of these topics."""
    ids = {topic.topic_id for name in topics if (topic := image.by_name.get(name)) is not None}
    return {
        (topic_id, partition): member_id
        for member_id, target in group.targets.items()
        for topic_id, partitions in target.items()
        if topic_id in ids
        for partition in partitions
    }


def _build_switch(group: ConsumerGroup, taken: Mapping[Place, str], owners: Mapping[Place, str]) -> list[facts.Record]:
    """Build the records that change targets so that the members in `taken` get its partitions."""
    targets: dict[str, dict[TopicId, set[int]]] = {}

    def target_of(member_id: str) -> dict[TopicId, set[int]]:
        if member_id not in targets:
            before = group.targets.get(member_id, NO_TARGET)
            targets[member_id] = {topic_id: set(partitions) for topic_id, partitions in before.items()}
        return targets[member_id]

    for place, member_id in taken.items():
        topic_id, partition = place
        former = owners.get(place)
        # A partition has one target owner: the former one loses it in the same batch.
        if former is not None:
            target_of(former)[topic_id].discard(partition)
        target_of(member_id).setdefault(topic_id, set()).add(partition)
    epoch = group.epoch + 1
    records: list[facts.Record] = [
        facts.ConsumerGroupEpochSet(group_id=group.group_id, epoch=epoch, metadata_hash=group.metadata_hash)
    ]
    if group.balance is not None:
        # The kept balance follows targets one by one, and here a member may gain a partition before another has lost
        # it.
        records.append(TargetBalanceKept(group_id=group.group_id, balance=None))
    records += (
        facts.MemberTargetSet(
            group_id=group.group_id,
            member_id=member_id,
            partitions={topic_id: tuple(sorted(found)) for topic_id, found in sorted(target.items()) if found},
        )
        for member_id, target in sorted(targets.items())
    )
    # No time of computation: a submitted target is no assignor's, and no step follows it.
    records.append(facts.TargetAssignmentEpochSet(group_id=group.group_id, assignment_epoch=epoch))
    return records

"""OffsetFetch: committed offsets.

Laws: a member whose group or membership is gone gets an error; "nothing committed" would send it to auto.offset.reset.
A request for stable offsets gets none that an open transaction may replace (KIP-447).
Source: KIP-848; Apache Kafka's `OffsetMetadataManager.fetchOffsets`. The previous epoch is accepted, too: the response
with the current one may still be on its way (KAFKA-20765).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kohort.coordinator.commands.offsets import CommittedOffset, FetchOffsets, FetchOffsetsReply
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import OffsetCommitted
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import ZERO_TOPIC_ID, TopicId


def decide_fetch(groups: GroupsState, command: FetchOffsets) -> Decision:
    """Look up committed offsets; raises `Refused` if the membership does not match."""
    _check_member(groups, command)
    topics = groups.offsets.get(command.group_id, {})
    pending = groups.pending_offsets.get(command.group_id, {}) if command.require_stable else {}
    if command.partitions is None and not pending:
        offsets = tuple(_everything(topics, groups.image))
    else:
        wanted = command.partitions
        if wanted is None:
            known = {(topic, partition) for topic, partitions in topics.items() for partition in partitions}
            wanted = tuple(sorted(known.union(pending)))
        offsets = tuple(
            _unstable(topic, partition, groups.image)
            if (topic, partition) in pending
            else _committed(topic, partition, topics.get(topic, {}).get(partition), _known_id(topic, groups.image))
            for topic, partition in wanted
        )
    return Decision(effects=(Reply(command.request, FetchOffsetsReply(offsets=offsets)),))


def _check_member(groups: GroupsState, command: FetchOffsets) -> None:
    member_id, epoch = command.member_id, command.member_epoch
    if (not member_id and epoch < 0) or command.group_id in groups.classic:
        return
    group = groups.consumer.get(command.group_id)
    member = None if group is None or member_id is None else group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {member_id} is not in the group {command.group_id}")
    if epoch not in (member.member_epoch, member.previous_member_epoch):
        raise Refused(
            ErrorCode.STALE_MEMBER_EPOCH, f"the request's epoch is {epoch}, and the member's is {member.member_epoch}"
        )


def _everything(topics: Mapping[str, Mapping[int, OffsetCommitted]], image: TopicImage) -> Iterator[CommittedOffset]:
    for topic, partitions in sorted(topics.items()):
        topic_id = _known_id(topic, image)
        for partition in sorted(partitions):
            yield _committed(topic, partition, partitions[partition], topic_id)


def _unstable(topic: str, partition: int, image: TopicImage) -> CommittedOffset:
    """Build the row of an offset that an open transaction may replace; the client repeats the request."""
    nothing = _committed(topic, partition, None, _known_id(topic, image))
    return nothing._replace(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def _known_id(topic: str, image: TopicImage) -> TopicId:
    facts = image.by_name.get(topic)
    return ZERO_TOPIC_ID if facts is None else facts.topic_id


def _committed(topic: str, partition: int, found: OffsetCommitted | None, known_id: TopicId) -> CommittedOffset:
    """Build the row of a committed offset; `known_id`: of the topic that has the name now."""
    if found is None:
        return CommittedOffset(topic, known_id, partition, -1, -1, "")
    topic_id = known_id if found.topic_id == ZERO_TOPIC_ID else found.topic_id
    return CommittedOffset(topic, topic_id, partition, found.offset, found.leader_epoch, found.metadata)

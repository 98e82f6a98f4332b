"""Who waits outside of a static group for its next rebalance, since it cannot be put into the present generation.

That are members of other protocol types than consumers', whose empty assignment only their leader could write, and
those that do not speak the protocol of the generation. A JoinGroup is parked for as long as all clients bear; then it
is sent back with a code that they take for a coordinator that is not ready yet, and comes again.

Laws: whoever is parked is no member. The next rebalance takes everybody who is.
Source: requirement S1; the time that clients give a JoinGroup (aiokafka: 40 s).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kohort.coordinator.classic.checks import GROUP_METADATA_LIMIT_BYTES, NEW_MEMBER_TIMEOUT_MS, PENDING_LIMIT
from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.classic.replies import build_join_error
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember, ParkedNewcomer
from kohort.coordinator.classic.volatile import JoinParked, MemberPut, NewcomerGone, NewcomerParked
from kohort.coordinator.commands import JoinGroup
from kohort.coordinator.decision import Disarm, Effect, Reply, TimerKey
from kohort.errors import ErrorCode, Refused

#: How long a JoinGroup waits.
PARKED_MS: Final = 25_000
#: Whoever was sent back and has not come again after this has given up.
RETURNS_WITHIN_MS: Final = 25_000
#: Kafka's "not yet": the Java client, librdkafka, kafka-python and aiokafka all ask the same coordinator again.
SENT_BACK: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def park(draft: Draft, command: JoinGroup, member: ClassicMember) -> None:
    """Let a JoinGroup wait."""
    group = draft.group
    waiting_bytes = sum(each.member.metadata_bytes for each in group.parked.values()) + member.metadata_bytes
    if len(group.parked) >= PENDING_LIMIT or group.metadata_bytes + waiting_bytes > GROUP_METADATA_LIMIT_BYTES:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many members wait for the group's next rebalance")
    newcomer = ParkedNewcomer(
        member=member, protocol_type=command.protocol_type, request=command.request, since_ms=draft.now_ms
    )
    draft.record(NewcomerParked(group_id=draft.group_id, newcomer=newcomer))
    draft.arm("join", PARKED_MS, member.member_id)


def unpark(draft: Draft, member: ClassicMember) -> None:
    """Somebody comes by a name under which a JoinGroup waits: the younger one counts."""
    assert member.instance_id is not None
    older = draft.group.parked.get(member.instance_id)
    if older is not None:
        _answer(draft, older, ErrorCode.FENCED_INSTANCE_ID)
        draft.record(NewcomerGone(group_id=draft.group_id, instance_id=member.instance_id))


def send_back(draft: Draft, member_id: str) -> None:
    """A JoinGroup has waited for as long as its client bears."""
    for found in draft.group.parked.values():
        if found.member.member_id == member_id and found.request is not None:
            draft.reply(found.request, build_join_error(SENT_BACK, ""))
            sent = replace(found, request=None, since_ms=draft.now_ms)
            draft.record(NewcomerParked(group_id=draft.group_id, newcomer=sent))
            return


def has_parked(draft: Draft) -> bool:
    """Whether somebody waits, or is about to ask again."""
    return any(
        found.request is not None or 0 <= draft.now_ms - found.since_ms < RETURNS_WITHIN_MS
        for found in draft.group.parked.values()
    )


def admit_parked(draft: Draft) -> None:
    """Put everybody who waits into the join phase that has begun; who was sent back finds it open."""
    for instance_id, found in list(draft.group.parked.items()):
        draft.record(NewcomerGone(group_id=draft.group_id, instance_id=instance_id))
        if found.request is None:
            continue
        member = found.member
        draft.disarm("join", member.member_id)
        if not draft.group.speaks(found.protocol_type, member.protocol_names):
            # Others came since, with protocols of their own.
            draft.reply(found.request, build_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
            continue
        put = MemberPut(group_id=draft.group_id, protocol_type=found.protocol_type, member=member)
        draft.record(put)
        draft.record(JoinParked(group_id=draft.group_id, member_id=member.member_id, request=found.request))
        draft.arm("session", max(NEW_MEMBER_TIMEOUT_MS, member.session_timeout_ms), member.member_id)


def dismiss_parked(group: ClassicGroup) -> list[Effect]:
    """The group goes on as one of the other protocol: everybody who waits is to ask again."""
    effects: list[Effect] = []
    for found in group.parked.values():
        effects.append(Disarm(TimerKey("join", group.group_id, found.member.member_id)))
        if found.request is not None:
            effects.append(Reply(found.request, build_join_error(SENT_BACK, "")))
    return effects


def _answer(draft: Draft, found: ParkedNewcomer, error: ErrorCode) -> None:
    if found.request is not None:
        draft.disarm("join", found.member.member_id)
        draft.reply(found.request, build_join_error(error, ""))

"""New members parked outside of a static group until its next rebalance.

These are members of other protocol types than "consumer", for which only their leader could write an empty assignment,
and members that do not support the generation's protocol. A JoinGroup is parked for as long as all clients allow. Then
it is refused with a code by which clients take the coordinator for not ready yet, and repeat the request.

Laws: a parked client is no member. The next rebalance admits all of them.
Source: requirement S1; the time that clients give a JoinGroup (aiokafka: 40 s).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kohort.coordinator.classic.checks import GROUP_METADATA_LIMIT_BYTES, NEW_MEMBER_TIMEOUT_MS, PENDING_LIMIT
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.replies import build_join_error
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember, ParkedNewcomer
from kohort.coordinator.classic.volatile import JoinParked, MemberPut, NewcomerGone, NewcomerParked
from kohort.coordinator.commands.groups import JoinGroup
from kohort.coordinator.decision import Disarm, Effect, Reply, TimerKey
from kohort.errors import ErrorCode, Refused

#: How long a JoinGroup is parked, ms.
PARKED_MS: Final = 25_000
#: A refused client that has not repeated its request after this time, ms, has given up.
RETURNS_WITHIN_MS: Final = 25_000
#: Error for a coordinator that is loading: the Java client, librdkafka, kafka-python and aiokafka all repeat the
#: request.
SENT_BACK: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def park(draft: Draft, command: JoinGroup, member: ClassicMember) -> None:
    """Park a JoinGroup."""
    group = draft.group
    waiting_bytes = sum(each.member.metadata_bytes for each in group.parked.values()) + member.metadata_bytes
    # Parked metadata counts as well, since the next rebalance adds it to the group.
    if len(group.parked) >= PENDING_LIMIT or group.metadata_bytes + waiting_bytes > GROUP_METADATA_LIMIT_BYTES:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many members wait for the group's next rebalance")
    newcomer = ParkedNewcomer(
        member=member, protocol_type=command.protocol_type, request=command.request, since_ms=draft.now_ms
    )
    draft.record(NewcomerParked(group_id=draft.group_id, newcomer=newcomer))
    draft.arm("join", PARKED_MS, member.member_id)


def unpark(draft: Draft, member: ClassicMember) -> None:
    """Fence an older parked JoinGroup with the same instance id: the newer one counts."""
    assert member.instance_id is not None
    older = draft.group.parked.get(member.instance_id)
    # The same instance id is parked already: two processes have it, and the newer one counts.
    if older is not None:
        _answer(draft, older, ErrorCode.FENCED_INSTANCE_ID)
        draft.record(NewcomerGone(group_id=draft.group_id, instance_id=member.instance_id))


def send_back(draft: Draft, member_id: str) -> None:
    """Refuse a JoinGroup that was parked for as long as its client allows, so that the client repeats it."""
    for found in draft.group.parked.values():
        if found.member.member_id == member_id and found.request is not None:
            draft.reply(found.request, build_join_error(SENT_BACK, ""))
            # The entry stays, so that the client's next JoinGroup finds its place.
            sent = replace(found, request=None, since_ms=draft.now_ms)
            draft.record(NewcomerParked(group_id=draft.group_id, newcomer=sent))
            return


def has_parked(draft: Draft) -> bool:
    """Whether a JoinGroup is parked, or was refused and is about to be repeated."""
    return any(
        found.request is not None or 0 <= draft.now_ms - found.since_ms < RETURNS_WITHIN_MS
        for found in draft.group.parked.values()
    )


def admit_parked(draft: Draft) -> None:
    """Admit all parked JoinGroups to the open join phase; a refused client finds it open."""
    for instance_id, found in list(draft.group.parked.items()):
        draft.record(NewcomerGone(group_id=draft.group_id, instance_id=instance_id))
        # The client was refused and has not come back yet: it joins the open phase by itself.
        if found.request is None:
            continue
        member = found.member
        draft.disarm("join", member.member_id)
        if not draft.group.speaks(found.protocol_type, member.protocol_names):
            # Members with other protocols may have joined since.
            draft.reply(found.request, build_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
            continue
        put = MemberPut(group_id=draft.group_id, protocol_type=found.protocol_type, member=member)
        draft.record(put)
        draft.record(JoinParked(group_id=draft.group_id, member_id=member.member_id, request=found.request))
        # A parked member cannot heartbeat, so its first session is long.
        draft.arm("session", max(NEW_MEMBER_TIMEOUT_MS, member.session_timeout_ms), member.member_id)


def dismiss_parked(group: ClassicGroup) -> list[Effect]:
    """Refuse all parked JoinGroups of a group that becomes a KIP-848 group, so that clients repeat them."""
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

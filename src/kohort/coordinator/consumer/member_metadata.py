"""Metadata of members: opaque bytes that a member publishes to other members and administrators.

The metadata is stored (record 20,008) and moves no partition: no epoch, no target, no assignment changes. The heartbeat
of a watching member has the version up to which it knows the other members' metadata. The response has later changes,
a page at a time. A new edition (a batch of changes) ends the holds of heartbeats. It is issued `COALESCED_MS` after its
first change, and no sooner after the previous edition than `group.heartbeat.rate.max` allows.

Laws: a member that publishes gets its response at once, as acknowledgement; so does one that knows nothing (version 0).
Metadata is removed with its member, unless a new process takes over the instance id. No other held heartbeat is ended.
Source: KIP-848's motivation (members that propagate state need no rebalance for it); requirement G10.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kohort.base.values import value
from kohort.coordinator import commands
from kohort.coordinator.commands import JOIN_EPOCH, ConsumerGroupHeartbeat
from kohort.coordinator.consumer.metadata_log import NOTHING_YET, MetadataLog
from kohort.coordinator.decision import Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused

#: Limits of the metadata of one member, and of all members of a group.
MEMBER_LIMIT_BYTES: Final = 64 * 1024
GROUP_LIMIT_BYTES: Final = 16 * 1024 * 1024
#: Changes within this time, ms, are told together.
COALESCED_MS: Final = 50
#: Limit of all pages of one edition together; a page ends with the first member beyond its size.
_WAVE_BYTES: Final = 16 * 1024 * 1024
_LEAST_PAGE_BYTES: Final = 16 * 1024
#: Approximate size of a member in a response beside its metadata.
_ROW_BYTES: Final = 64
#: Records that may change published metadata.
_FOLLOWED: Final = (facts.ConsumerMemberForgotten, facts.MemberMetadataSet, facts.MemberMetadataForgotten)


@value
class EditionIssued(facts.VolatileRecord):
    """Responses have changes up to this version now; the next edition is not before `not_before_ms`."""

    version: int
    not_before_ms: int


@value
class BoardLoaded(facts.VolatileRecord):
    """The group was loaded: versions now begin above `base`, so every member gets all metadata once."""

    base: int


def is_told(group: ConsumerGroup, command: ConsumerGroupHeartbeat) -> bool:
    """Return whether a heartbeat neither publishes metadata nor misses changes that it watches for."""
    if command.metadata is not None:
        return False
    return command.watched_version < 0 or command.watched_version == edition_of(group)


def edition_of(group: ConsumerGroup | None) -> int:
    """Return the version up to which responses to a group's members have changes."""
    return NOTHING_YET if group is None or group.published is None else group.published.edition


def metadata_of(group: ConsumerGroup, member_id: str) -> bytes | None:
    """Return a member's published metadata for administrators, `None` if none."""
    entry = None if group.published is None else group.published.find(member_id)
    return None if entry is None else entry.metadata


def add_metadata(groups: GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """Add the metadata of a heartbeat and the news for a watching member to a decision.

    Raises:
        Refused: INVALID_REQUEST if a member publishes too much, POLICY_VIOLATION if its group would.
    """
    if command.member_epoch < JOIN_EPOCH:
        return decision
    group = groups.consumer.get(command.group_id)
    if group is not None and is_told(group, command):
        return decision
    effects = tuple(_add_news(groups, group, command, effect) for effect in decision.effects)
    records = _build_records(group, command, now_ms=now_ms)
    return replace(decision, records=(*decision.records, *records), effects=effects)


def follow_published(groups: GroupsState, decision: Decision, *, now_ms: int) -> Decision:
    """Add the effects on metadata to a decision: remove it with its member, or pass it to the successor."""
    changed = [record for record in decision.records if isinstance(record, _FOLLOWED)]
    if not changed:
        return decision
    dropped: list[facts.Record] = []
    kept: list[facts.Record] = []
    for record in changed:
        if isinstance(record, facts.ConsumerMemberForgotten):
            _follow_gone(groups, record, decision.records, dropped, kept)
    # A removed group needs no deadline for its next edition.
    gone = {record.group_id for record in decision.records if isinstance(record, facts.ConsumerGroupForgotten)}
    touched = {
        record.group_id for record in (*changed, *dropped) if not isinstance(record, facts.ConsumerMemberForgotten)
    }
    deadlines = tuple(_deadline(groups, group_id, now_ms=now_ms) for group_id in sorted(touched - gone))
    if not dropped and not deadlines:
        return decision
    # Tombstones of a group come after all records in it.
    records = (*dropped, *decision.records, *kept)
    return replace(decision, records=records, effects=(*decision.effects, *deadlines))


def decide_edition(
    groups: GroupsState, group: ConsumerGroup, settings: GroupSettings, *, now_ms: int
) -> Decision | None:
    """Issue an edition when its deadline has passed; `None` if there are no changes."""
    board = group.published
    if board is None or board.edition == board.version:
        return None
    # An edition answers all watching heartbeats at once, so the next one waits until the rate allows as many.
    watchers = sum(watches(command) for command in groups.holds.get(group.group_id, {}).values())
    not_before_ms = now_ms + 1_000 * watchers // settings.group_heartbeat_rate_max
    return Decision((EditionIssued(group_id=group.group_id, version=board.version, not_before_ms=not_before_ms),))


def watches(command: object) -> bool:
    """Return whether a heartbeat watches the other members' metadata."""
    return isinstance(command, ConsumerGroupHeartbeat) and command.watched_version >= 0


def put_metadata(group: ConsumerGroup, record: facts.MemberMetadataSet) -> None:
    """Set the metadata of a member (type 20,008) in an existing group."""
    if group.published is None:
        group.published = MetadataLog()
    group.published.put(record.member_id, record.metadata, record.published_ms)


def apply_metadata_forgotten(groups: GroupsState, record: facts.MemberMetadataForgotten) -> None:
    """Withdraw the metadata of a member (tombstone of type 20,008)."""
    group = groups.consumer.get(record.group_id)
    if group is not None and group.published is not None:
        group.published.drop(record.member_id)


def apply_edition_issued(groups: GroupsState, record: EditionIssued) -> None:
    """Set the edition: the version up to which responses to members have changes."""
    group = groups.consumer.get(record.group_id)
    if group is not None and group.published is not None:
        group.published.edition, group.published.not_before_ms = record.version, record.not_before_ms


def apply_board_loaded(groups: GroupsState, record: BoardLoaded) -> None:
    """Renumber the group's metadata log after a restart."""
    group = groups.consumer[record.group_id]
    board = group.published
    assert board is not None, "there is something to tell"
    # A damaged log may have left metadata of members that do not exist.
    for member_id in board.entries.keys() - group.members.keys():
        board.drop(member_id)
    board.renumber(record.base)
    board.edition = board.version


def is_known(board: MetadataLog, version: int) -> bool:
    """Return whether all changes after a version are known here: the version is not from an earlier run."""
    return board.floor <= version <= board.edition


def _build_records(
    group: ConsumerGroup | None, command: ConsumerGroupHeartbeat, *, now_ms: int
) -> Iterator[facts.Record]:
    """Yield the records of a heartbeat's metadata; none if it is unchanged."""
    metadata, group_id, member_id = command.metadata, command.group_id, command.member_id
    if metadata is None:
        return
    if len(metadata) > MEMBER_LIMIT_BYTES:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"Metadata has {len(metadata)} bytes; a member may publish {MEMBER_LIMIT_BYTES} at most",
        )
    board = None if group is None else group.published
    entry = None if board is None else board.find(member_id)
    if not metadata:
        # A new process of an instance id withdraws the metadata of the former one by this.
        if entry is not None or (board is not None and command.instance_id is not None):
            yield facts.MemberMetadataForgotten(group_id=group_id, member_id=member_id)
        return
    if entry is not None and entry.metadata == metadata:
        return
    before = 0 if entry is None else len(entry.metadata or b"")
    others = 0 if board is None else board.size_bytes - before
    if others + len(metadata) > GROUP_LIMIT_BYTES:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"the members of {group_id} publish {others} bytes already; with these {len(metadata)} it would be more "
            f"than {GROUP_LIMIT_BYTES}, which is what a group may publish",
        )
    yield facts.MemberMetadataSet(group_id=group_id, member_id=member_id, metadata=metadata, published_ms=now_ms)


def _follow_gone(
    groups: GroupsState,
    gone: facts.ConsumerMemberForgotten,
    records: Sequence[facts.Record],
    dropped: list[facts.Record],
    kept: list[facts.Record],
) -> None:
    """Remove the metadata of a removed member, or pass it to a static successor without own metadata."""
    group_id = gone.group_id
    group = groups.consumer.get(group_id)
    member = None if group is None else group.members.get(gone.member_id)
    entry = None if group is None or group.published is None else group.published.find(gone.member_id)
    # The member has published no metadata, so there is none to drop or pass on.
    if member is None or entry is None or entry.metadata is None:
        return
    dropped.append(facts.MemberMetadataForgotten(group_id=group_id, member_id=gone.member_id))
    if member.instance_id is None:
        return
    # A successor with metadata of its own in this decision keeps that.
    said = {
        record.member_id
        for record in records
        if isinstance(record, facts.MemberMetadataSet | facts.MemberMetadataForgotten)
    }
    for record in records:
        if not isinstance(record, facts.ConsumerMemberSubscribed) or record.instance_id != member.instance_id:
            continue
        # Classic members publish no metadata.
        if record.group_id == group_id and record.classic is None and record.member_id not in said:
            after = facts.MemberMetadataSet(
                group_id=group_id, member_id=record.member_id, metadata=entry.metadata, published_ms=entry.published_ms
            )
            kept.append(after)


def _deadline(groups: GroupsState, group_id: str, *, now_ms: int) -> Arm:
    group = groups.consumer.get(group_id)
    not_before_ms = 0 if group is None or group.published is None else group.published.not_before_ms
    return Arm(TimerKey("edition", group_id), max(now_ms + COALESCED_MS, not_before_ms), if_absent=True)


def _add_news(
    groups: GroupsState, group: ConsumerGroup | None, command: ConsumerGroupHeartbeat, effect: Effect
) -> Effect:
    """Add changes of metadata to the reply to a heartbeat that watches for them."""
    if not isinstance(effect, Reply) or effect.request != command.request:
        return effect
    body = effect.body
    if not isinstance(body, commands.ConsumerGroupHeartbeatReply):
        return effect
    # All held heartbeats of a group may be answered by one edition, so they share its size.
    told_together = max(1, len(groups.holds.get(command.group_id, ())))
    news = build_news(group, command, page_bytes=max(_LEAST_PAGE_BYTES, _WAVE_BYTES // told_together))
    return effect if news is None else Reply(effect.request, replace(body, metadata_news=news))


def build_news(
    group: ConsumerGroup | None, command: ConsumerGroupHeartbeat, *, page_bytes: int
) -> commands.MetadataNews | None:
    """Build the changes of metadata for a heartbeat; `None` if there are none.

    If they exceed a page, the member fetches the rest with the version of this page.
    """
    edition, known = edition_of(group), command.watched_version
    if known < 0 or known == edition:
        # An acknowledgement.
        taken = commands.MetadataNews(version=edition, is_whole=False, has_more=False, members=())
        return None if command.metadata is None else taken
    if group is None or group.published is None:
        return commands.MetadataNews(version=edition, is_whole=True, has_more=False, members=())
    board = group.published
    is_whole = not is_known(board, known)
    members: list[commands.Published] = []
    size, version, has_more = 0, edition, False
    for member_id, entry in board.changes_since(0 if is_whole else known):
        # A whole list names only members with metadata.
        if is_whole and entry.metadata is None:
            continue
        # The page is full: the member asks for the rest with this version.
        if size >= page_bytes:
            has_more = True
            break
        member = group.members.get(member_id)
        members.append(commands.Published(member_id, None if member is None else member.instance_id, entry.metadata))
        size += _ROW_BYTES + len(entry.metadata or b"")
        version = entry.version
    # Changes newer than the edition are told now, as far as there is room, and again with their own edition.
    has_more = has_more and version < edition
    return commands.MetadataNews(
        version=version if has_more else edition, is_whole=is_whole, has_more=has_more, members=tuple(members)
    )

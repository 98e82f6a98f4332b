"""What members publish: it is stored, told to those who watch and to administrators, and moves nothing.

Source: KIP-848's motivation: state of members reaches the others without a rebalance; requirement G10.
"""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands import ConsumerGroupHeartbeatReply, MetadataNews
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.consumer.apply import apply_metadata_set
from kohort.coordinator.consumer.member_metadata import (
    COALESCED_MS,
    GROUP_LIMIT_BYTES,
    MEMBER_LIMIT_BYTES,
    EditionIssued,
    add_metadata,
    apply_edition_issued,
    apply_metadata_forgotten,
    build_news,
    is_known,
)
from kohort.coordinator.consumer.metadata_log import GONE_LIMIT, NOTHING_YET, MetadataLog
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records.types import MemberMetadataForgotten, MemberMetadataSet, VolatileRecord
from kohort.errors import ErrorCode, Refused
from kohort.ids import CauseId, RequestToken
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.hold_dialogue import HoldDialogue


def news_in(answer: Answer) -> MetadataNews | None:
    reply: ConsumerGroupHeartbeatReply = answer.body_as(ConsumerGroupHeartbeatReply)
    return reply.metadata_news


def told_in(answer: Answer) -> dict[str, bytes | None]:
    news = news_in(answer)
    assert news is not None
    return {each.member_id: each.metadata for each in news.members}


def version_in(answer: Answer) -> int:
    news = news_in(answer)
    assert news is not None
    return news.version


def group_of(*members: str, **limits: int) -> HoldDialogue:
    """One partition for each member, all at rest."""
    group = HoldDialogue({"t": len(members)}, **limits)
    for member_id in members:
        group.heartbeat(member_id, epoch=0)
    group.settle()
    for member_id in members:
        group.beat(member_id, owned=[number for _, number in group.holders()[member_id]], hold_ms=0)
    group.new_records()
    return group


def watch(group: HoldDialogue, member_id: str) -> int:
    """The version that a member has when it has been told everything."""
    return version_in(group.beat(member_id, watched_version=0))


def test_publishing_is_one_record_and_moves_nothing() -> None:
    group = group_of("a", "b")
    before = group.group.epoch, dict(group.group.targets), group.holders()
    answer = group.beat("a", metadata=b"lag=7")
    answer.replies(epoch=2, assigned=None)
    assert news_in(answer) == MetadataNews(version=NOTHING_YET, is_whole=False, has_more=False, members=())
    durable = [record for record in group.new_records() if not isinstance(record, VolatileRecord)]
    assert durable == [
        MemberMetadataSet(group_id="g", member_id="a", metadata=b"lag=7", published_ms=group.now_ms),
    ]
    assert (group.group.epoch, dict(group.group.targets), group.holders()) == before


def test_watcher_is_told_everything_once_and_then_what_changes() -> None:
    group = group_of("a", "b", "c")
    group.beat("a", metadata=b"1")
    group.advance(COALESCED_MS)
    answer = group.beat("c", watched_version=0)
    news = news_in(answer)
    assert news is not None and news.is_whole and not news.has_more
    assert told_in(answer) == {"a": b"1"}
    held = group.beat("c", watched_version=news.version)
    assert held.is_parked
    group.beat("b", metadata=b"2")
    assert held.is_parked
    group.advance(COALESCED_MS)
    assert told_in(held) == {"b": b"2"}
    assert not news_in(held).is_whole  # type: ignore[union-attr]


def test_changes_of_fifty_milliseconds_are_told_together() -> None:
    group = group_of("a", "b", "c")
    held = group.beat("c", watched_version=watch(group, "c"))
    for step in range(5):
        group.beat("a", metadata=b"a%d" % step)
        group.beat("b", metadata=b"b%d" % step)
        group.advance(COALESCED_MS // 5 - 1)
        assert held.is_parked
    group.advance(COALESCED_MS)
    assert told_in(held) == {"a": b"a4", "b": b"b4"}
    # And nothing is left to tell.
    again = group.beat("c", watched_version=version_in(held))
    group.advance(COALESCED_MS * 2)
    assert again.is_parked


def test_only_those_who_watch_are_answered() -> None:
    group = group_of("a", "b", "c")
    watching = group.beat("c", watched_version=watch(group, "c"))
    other = group.beat("b")
    group.beat("a", metadata=b"x")
    group.advance(COALESCED_MS)
    assert other.is_parked and not watching.is_parked
    assert group.held() == {"b"}


def test_the_same_again_is_no_change_and_nothing_any_more_is_told_as_null() -> None:
    group = group_of("a", "b")
    group.beat("a", metadata=b"x")
    group.advance(COALESCED_MS)
    version = watch(group, "b")
    group.new_records()
    assert news_in(group.beat("a", metadata=b"x")) is not None
    assert not [record for record in group.new_records() if not isinstance(record, VolatileRecord)]
    held = group.beat("b", watched_version=version)
    group.advance(COALESCED_MS)
    assert held.is_parked
    group.beat("a", metadata=b"")
    group.advance(COALESCED_MS)
    assert told_in(held) == {"a": None}
    # Nothing was published: nothing is written.
    group.new_records()
    group.beat("a", metadata=b"")
    assert not [record for record in group.new_records() if not isinstance(record, VolatileRecord)]


def test_what_a_member_published_goes_with_it() -> None:
    """By its own word, by its session's end; the records go, too."""
    group = group_of("a", "b", "c")
    group.beat("a", metadata=b"a")
    group.beat("b", metadata=b"b")
    group.advance(COALESCED_MS)
    version = watch(group, "c")
    group.leave("a")
    group.advance(COALESCED_MS)
    answer = group.beat("c", watched_version=version, hold_ms=0)
    assert told_in(answer) == {"a": None}
    while "b" in group.group.members:
        group.beat("c", hold_ms=0)
        group.advance(5_000)
    group.advance(COALESCED_MS)
    assert told_in(group.beat("c", watched_version=version_in(answer), hold_ms=0)) == {"b": None}
    records = [record for record in group.new_records() if isinstance(record, MemberMetadataForgotten)]
    assert [record.member_id for record in records] == ["a", "b"]


def test_a_static_members_successor_goes_on_with_what_was_published_under_its_name() -> None:
    group = HoldDialogue({"t": 2})
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("b", epoch=0)
    group.settle()
    group.beat("a", instance_id="one", metadata=b"warm")
    group.advance(COALESCED_MS)
    version = watch(group, "b")
    epoch = group.group.epoch
    group.heartbeat("a", epoch=-2, instance_id="one")
    assert group.group.published is not None and set(group.group.published.living()) == {"a"}
    group.heartbeat("a2", epoch=0, instance_id="one")
    assert set(group.group.published.living()) == {"a2"}
    assert group.group.epoch == epoch
    group.advance(COALESCED_MS)
    answer = group.beat("b", watched_version=version, hold_ms=0)
    assert told_in(answer) == {"a": None, "a2": b"warm"}
    (after,) = [each for each in news_in(answer).members if each.metadata is not None]  # type: ignore[union-attr]
    assert after.instance_id == "one"


def test_a_successor_may_publish_something_else_as_it_joins_or_nothing() -> None:
    for said, kept in ((b"cold", {"a2": b"cold"}), (b"", {})):
        group = HoldDialogue({"t": 2})
        group.heartbeat("a", epoch=0, instance_id="one", metadata=b"warm")
        group.heartbeat("a", epoch=-2, instance_id="one")
        group.heartbeat("a2", epoch=0, instance_id="one", metadata=said)
        assert group.group.published is not None
        assert {name: data for name, (data, _) in group.group.published.living().items()} == kept


def test_after_a_restart_everybody_is_told_everything_once() -> None:
    group = group_of("a", "b", "c")
    group.beat("a", metadata=b"a")
    group.beat("b", metadata=b"b")
    group.advance(COALESCED_MS)
    version = watch(group, "c")
    group.leave("b")
    group.restart()
    answer = group.beat("c", watched_version=version)
    news = news_in(answer)
    assert news is not None and news.is_whole and news.version != version
    assert told_in(answer) == {"a": b"a"}
    assert group.beat("c", watched_version=news.version).is_parked


def test_what_is_known_of_the_board_before_is_not_known_of_this_one() -> None:
    """Seed 1045: nobody published any more, all of it was forgotten, and then somebody else did."""
    before, board = MetadataLog(), MetadataLog()
    before.put("a", b"a", 4_000)
    board.put("b", b"b", 5_000)
    board.edition = board.version
    assert not is_known(board, before.version)
    assert is_known(board, board.version)


def test_versions_of_two_lives_differ_though_the_clock_was_set_back() -> None:
    """Seed 2919: what was published has a later time than the broker that reads it has."""
    given: list[set[int]] = []
    for others in ((b"a",), ()):
        board = MetadataLog()
        board.put("m", b"m", 9_000_000)
        for metadata in others:
            board.put("n", metadata, 9_000_000)
        board.renumber(board.loaded_base(1_000))
        versions = {board.version}
        for number in range(100):
            board.put("m", b"%d" % number, 1_001)
            versions.add(board.version)
        given.append(versions)
    assert not given[0] & given[1]


def test_who_knows_of_a_life_in_which_somebody_published_learns_that_nobody_does() -> None:
    group = group_of("a", "b")
    answer = group.beat("b", watched_version=1 << 40)
    assert news_in(answer) == MetadataNews(version=NOTHING_YET, is_whole=True, has_more=False, members=())


def test_too_much_is_refused_with_the_limit_and_changes_nothing() -> None:
    group = group_of("a", "b")
    group.beat("a", metadata=bytes(MEMBER_LIMIT_BYTES))
    group.new_records()
    answer = group.beat("a", metadata=bytes(MEMBER_LIMIT_BYTES + 1))
    answer.is_refused(ErrorCode.INVALID_REQUEST, saying=f"Metadata has 65537 bytes; a member may publish {64 * 1024}")
    assert not group.new_records()
    assert group.beat("a").is_parked


def full_group() -> tuple[GroupsState, ConsumerGroup]:
    """256 members of which each publishes as much as it may, told of in one edition."""
    groups = GroupsState()
    for number in range(GROUP_LIMIT_BYTES // MEMBER_LIMIT_BYTES):
        apply_metadata_set(
            groups,
            MemberMetadataSet(
                group_id="g", member_id=f"m{number:03}", metadata=bytes([number]) * MEMBER_LIMIT_BYTES, published_ms=5
            ),
        )
    board = groups.consumer["g"].published
    assert board is not None
    apply_edition_issued(groups, EditionIssued(group_id="g", version=board.version, not_before_ms=0))
    return groups, groups.consumer["g"]


def said(member_id: str, **fields: Any) -> commands.ConsumerGroupHeartbeat:
    return commands.ConsumerGroupHeartbeat(
        cause=CauseId(1),
        request=RequestToken(1),
        group_id="g",
        member_id=member_id,
        member_epoch=1,
        client_id="",
        client_host="",
        **fields,
    )


def test_a_group_publishes_so_much_and_no_more() -> None:
    groups, _ = full_group()
    with pytest.raises(Refused, match=f"publish {GROUP_LIMIT_BYTES} bytes already") as refused:
        add_metadata(groups, said("late", metadata=b"x"), Decision(), now_ms=9)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    # In place of its own a member may publish as much again, and what it takes back is free for others.
    again = add_metadata(groups, said("m000", metadata=b"y" * MEMBER_LIMIT_BYTES), Decision(), now_ms=9)
    assert [type(record) for record in again.records] == [MemberMetadataSet]
    apply_metadata_forgotten(groups, MemberMetadataForgotten(group_id="g", member_id="m001"))
    assert add_metadata(groups, said("late", metadata=b"x"), Decision(), now_ms=9).records


def test_much_is_told_in_pages() -> None:
    """Nobody is told megabytes at once: the rest is asked for by the version of the part before."""
    _, group = full_group()
    found: dict[str, bytes | None] = {}
    pages: list[MetadataNews] = []
    while not pages or pages[-1].has_more:
        version = pages[-1].version if pages else 0
        page = build_news(group, said("m000", watched_version=version), page_bytes=256 * 1024)
        assert page is not None
        found.update((each.member_id, each.metadata) for each in page.members)
        pages.append(page)
    assert group.published is not None
    assert found == {name: entry.metadata for name, entry in group.published.entries.items()}
    assert [page.is_whole for page in pages] == [True] + [False] * (len(pages) - 1)
    assert len(pages) == 64 and max(len(page.members) for page in pages) == 4
    assert pages[-1].version == group.published.edition


def test_editions_come_no_faster_than_heartbeats_may() -> None:
    """`group.heartbeat.rate.max`: who publishes all the time does not keep a broker busy with telling it to many."""
    group = group_of("a", "b", "c", "d", group_heartbeat_rate_max=2)
    watchers = {name: group.beat(name, watched_version=watch(group, name)) for name in "bcd"}
    group.beat("a", metadata=b"1")
    group.advance(COALESCED_MS)
    versions = {name: version_in(answer) for name, answer in watchers.items()}
    watchers = {name: group.beat(name, watched_version=versions[name]) for name in "bcd"}
    group.beat("a", metadata=b"2")
    group.advance(1_000)
    assert all(answer.is_parked for answer in watchers.values())
    group.advance(500)
    assert [told_in(answer) for answer in watchers.values()] == [{"a": b"2"}] * 3


def test_a_member_that_joins_publishes_and_watches_with_its_first_word() -> None:
    group = group_of("a")
    group.beat("a", metadata=b"a")
    group.advance(COALESCED_MS)
    answer = group.heartbeat("b", epoch=0, metadata=b"b", watched_version=0)
    assert told_in(answer)["a"] == b"a"
    assert group.group.published is not None and set(group.group.published.living()) == {"a", "b"}


def test_a_join_that_is_held_is_told_with_its_share() -> None:
    group = HoldDialogue({"t": 2}, group_consumer_assignment_window_ms=500)
    answer = group.heartbeat("a", epoch=0, metadata=b"a", watched_version=0, hold_ms=1_000)
    assert answer.is_parked
    group.advance(600)
    assert answer.body_as(ConsumerGroupHeartbeatReply).assignment
    assert told_in(answer) == {"a": b"a"}


def test_who_does_not_watch_is_told_as_before() -> None:
    """Stock clients: nothing of it is in any answer."""
    group = group_of("a", "b")
    group.beat("a", metadata=b"x")
    group.advance(COALESCED_MS)
    assert news_in(group.beat("b", hold_ms=0)) is None
    assert news_in(group.heartbeat("c", epoch=0)) is None


def test_administrators_see_what_each_publishes_at_once() -> None:
    group = HoldDialogue({"t": 2})
    group.heartbeat("a", epoch=0, metadata=b"x")
    group.heartbeat("b", epoch=0)
    described = group.describe().body_as(DescribeConsumerGroupReply)
    assert {member.member_id: member.metadata for member in described.members} == {"a": b"x", "b": None}


def test_those_that_are_gone_are_forgotten_when_they_are_many_and_then_everything_is_told_anew() -> None:
    board = MetadataLog()
    board.put("stays", b"s", 5)
    known = board.version
    for number in range(GONE_LIMIT + 1):
        board.put(f"m{number}", b"x", 5)
        board.drop(f"m{number}")
    assert set(board.entries) == {"stays"} and board.gone_count == 0 and board.size_bytes == 1
    assert board.floor > known
    assert [name for name, _ in board.changes_since(board.floor)] == ["stays"]


def test_a_board_tells_of_each_member_its_latest_in_the_order_of_changes() -> None:
    board = MetadataLog()
    for step in range(1_000):
        board.put(f"m{step % 7}", b"%d" % step, 5)
    found = list(board.changes_since(0))
    assert [entry.metadata for _, entry in found] == [b"%d" % step for step in range(993, 1_000)]
    assert [entry.version for _, entry in found] == sorted(entry.version for _, entry in found)
    assert list(board.changes_since(found[4][1].version)) == found[5:]

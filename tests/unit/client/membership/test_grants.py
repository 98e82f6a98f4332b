"""Dialogues with a member whose group enforces ownership (H5): it shows its grant to leaders, lets go of partitions
that they refuse, and stops when its lease is over; and with one whose fetches count as heartbeats (H7)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kohort.client.consumer.application_events import (
    AsynchronousCommitAsked,
    CallbackKind,
    CommitAsked,
    OwnedUntil,
    Paused,
    ReadsRefused,
)
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.wire.messages import consumer_group_heartbeat as heartbeat
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, OwnershipGrant
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.membership import MembershipUpdate
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch, orders

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST
#: A hundredth of a lease is left out, for clocks that differ.
LEASE_MS, SURE_MS, INTERVAL_MS = 20_000, 19_800, 5_000
FENCED = ErrorCode.FENCED_MEMBER_EPOCH


def grant(token: str = "kh1.first", lease_ms: int = LEASE_MS) -> OwnershipGrant:
    return OwnershipGrant(token=token, lease_ms=lease_ms)


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest with the partitions 0 and 1, at epoch 1, with a grant, and a fetch of both waits."""
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(assigned=(0, 1), number=1, grant=grant())
    member.acknowledge(ASSIGNED, 0, 1)
    member.reply()
    member.fetching()
    return member


def fetches(member: ConsumerDialogue, lane: Lane = Lane.FETCH) -> list[FetchRequest]:
    """Those under way."""
    member.settle()
    found = [send.request for send in member.find(FetchRequest) if send.lane is lane]
    return [each for each in found if isinstance(each, FetchRequest)]


def answer(
    member: ConsumerDialogue,
    rows: Mapping[int, bytes | ErrorCode] | None = None,
    *,
    news: MembershipUpdate | None = None,
    lane: Lane = Lane.FETCH,
) -> FetchRequest:
    """Answer the fetch of a lane; returns it."""
    (request,) = fetches(member, lane)
    data = [
        PartitionData(partition_index=index, error_code=int(each), records=memoryview(b""))
        if isinstance(each, ErrorCode)
        else PartitionData(partition_index=index, high_watermark=99, records=memoryview(each))
        for index, each in (rows or {}).items()
    ]
    responses = [FetchableTopicResponse(topic_id=ORDERS, partitions=data)] if data else []
    session_id = 7 if lane is Lane.FETCH else 0
    response = FetchResponse(responses=responses, session_id=session_id, membership_update=news)
    member.answer(request, response, version=17)
    member.settle()
    return request


def update(number: int, *partitions: int, renewed: OwnershipGrant | None = None, epoch: int = 1) -> MembershipUpdate:
    """News of these partitions, or without any a renewed grant alone."""
    rows = [heartbeat.TopicPartitions(topic_id=ORDERS, partitions=list(partitions))]
    assignment = heartbeat.Assignment(topic_partitions=rows) if partitions else None
    return MembershipUpdate(number=number, member_id="m-1", member_epoch=epoch, assignment=assignment, grant=renewed)


def beats(member: ConsumerDialogue) -> list[ConsumerGroupHeartbeatRequest]:
    """Those under way, the latest last."""
    member.settle()
    found = [send.request for send in member.find(ConsumerGroupHeartbeatRequest)]
    return [each for each in found if isinstance(each, ConsumerGroupHeartbeatRequest)]


def listed(request: ConsumerGroupHeartbeatRequest | OffsetCommitRequest) -> list[int] | None:
    """The partitions that a heartbeat lists as owned, or a commit as released."""
    rows = request.released if isinstance(request, OffsetCommitRequest) else request.topic_partitions
    return None if rows is None else [each for row in rows for each in row.partitions]


def owned_until(member: ConsumerDialogue) -> int | None:
    until_ms = member.delivered(OwnedUntil)[-1].until_ms
    assert until_ms is None or isinstance(until_ms, int)
    return until_ms


# -- grants on the wire -----------------------------------------------------------------------------------------------


def test_grant_is_shown_once_by_a_connection_and_again_when_it_changes(member: ConsumerDialogue) -> None:
    assert answer(member, {0: batch(0, 1)}).grant == "kh1.first"
    assert answer(member, {0: batch(1, 1)}).grant is None
    answer(member, news=update(5, renewed=grant("kh1.second")))
    assert [each.grant for each in fetches(member)] == ["kh1.second"]


def test_short_fetch_has_no_session_and_shows_it_each_time() -> None:
    """Partitions that are resumed while the fetch of the others waits are asked for beside it."""
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(assigned=(0, 1), number=1, grant=grant())
    member.acknowledge(ASSIGNED, 0, 1)
    answer(member)
    said = []
    for offset in range(2):
        member.take(Paused(partitions=orders(1), is_paused=True))
        member.settle()
        answer(member)
        fetches(member)
        member.take(Paused(partitions=orders(1), is_paused=False))
        said.append(answer(member, {1: batch(offset, 1)}, lane=Lane.FETCH_AT_ONCE).grant)
    assert said == ["kh1.first", "kh1.first"]


def test_grant_that_is_renewed_by_a_heartbeat_ends_a_long_wait(member: ConsumerDialogue) -> None:
    """A leader that is cut off from the coordinator goes by the lease that it was shown."""
    answer(member)
    answer(member)
    (long,) = fetches(member)
    assert (long.max_wait_ms, long.grant) == (INTERVAL_MS * 7 // 10, None)
    member.advance(INTERVAL_MS)
    member.reply(grant=grant("kh1.second"))
    member.settle()
    (_, short) = fetches(member)
    assert (short.max_wait_ms, short.grant, short.topics) == (0, "kh1.second", [])
    member.answer(long, FetchResponse(session_id=7), version=17)
    member.answer(short, FetchResponse(), version=17)
    (next_one,) = fetches(member)
    assert (next_one.max_wait_ms, next_one.grant) == (500, "kh1.second")


def test_grant_is_shown_anew_by_another_connection(member: ConsumerDialogue) -> None:
    member.fail(fetches(member)[0], Failure.DISCONNECTED)
    member.advance(1_000)
    assert [each.grant for each in fetches(member)] == ["kh1.first"]


def test_leader_that_does_not_coordinate_is_shown_the_grant_and_told_the_member() -> None:
    member = ConsumerDialogue()
    member.is_kohort = True
    other = Endpoint("127.0.0.1", 9093)
    member.brokers[2] = other
    member.leaders[orders(1)[0]] = 2
    member.subscribe()
    member.reply(assigned=(0, 1), number=1, grant=grant())
    member.acknowledge(ASSIGNED, 0, 1)
    member.reply()
    sent = {send.to: send.request for send in member.find(FetchRequest) if send.lane is Lane.FETCH}
    said = sent[other]
    assert isinstance(said, FetchRequest) and said.member is not None
    assert (said.grant, said.member.member_id) == ("kh1.first", "m-1")


def test_brokers_of_others_are_shown_nothing(member: ConsumerDialogue) -> None:
    """A cluster has either kind, unless a proxy mixes them."""
    member.is_kohort = False
    answer(member)
    member.fail(fetches(member)[0], Failure.DISCONNECTED)
    member.advance(1_000)
    member.is_kohort = True
    assert [(each.grant, each.member is None) for each in fetches(member)] == [(None, False)]


def commit_of(member: ConsumerDialogue, **consumed: int) -> OffsetCommitRequest:
    member.poll(**consumed)
    for _ in range(60):
        if member.find(OffsetCommitRequest):
            break
        member.advance(100)
    return member.expect(OffsetCommitRequest)


def test_commit_shows_the_grant_that_covers_it(member: ConsumerDialogue) -> None:
    commit = commit_of(member, p0=3)
    assert (commit.grant, commit.released) == ("kh1.first", None)


def test_last_commit_of_revoked_partitions_goes_without_the_grant_that_lacks_them(member: ConsumerDialogue) -> None:
    answer(member, news=update(5, 0, renewed=grant("kh1.without")))
    member.acknowledge(REVOKED, 1, consumed={1: 4})
    commit = member.expect(OffsetCommitRequest)
    assert (commit.grant, listed(commit)) == (None, [1])


def test_grant_of_an_earlier_epoch_does_not_replace_a_later_one(member: ConsumerDialogue) -> None:
    """Its answer was overtaken."""
    member.advance(INTERVAL_MS)
    (beat,) = beats(member)
    answer(member, news=update(5, 0, 1, renewed=grant("kh1.later"), epoch=2))
    response = heartbeat.ConsumerGroupHeartbeatResponse(
        member_id="m-1", member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, grant=grant("kh1.older")
    )
    member.answer(beat, response, version=1)
    member.settle()
    token = member.machine._sender._targets.all()[0].session.token
    assert token == "kh1.later"


def test_no_text_has_a_token(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED}, news=update(5, renewed=grant("kh1.second")))
    member.acknowledge(REVOKED, 0, consumed={0: 4}) if member.questions else None
    held = member.machine._group.lookup.updates.grant  # type: ignore[union-attr]
    assert held is not None and held.token == "kh1.second"
    told = [repr(each) for each in (*member.actions, held, grant(), update(5, renewed=grant()))]
    assert any("<hidden>" in each for each in told)
    assert not [each for each in told if "kh1." in each]


# -- leaders that refuse ----------------------------------------------------------------------------------------------


def test_refused_partition_is_given_up_and_the_others_go_on(member: ConsumerDialogue) -> None:
    """Nothing of it is handed out from then on; no record of the others waits for that."""
    answer(member, {0: FENCED, 1: batch(0, 2)})
    assert [each.partitions for each in member.delivered(ReadsRefused)] == [tuple(orders(0))]
    assert [chunk.partition for chunk in member.chunks()] == orders(1)
    assert [listed(each) for each in beats(member)] == [[0, 1]], "the coordinator is asked at once"
    assert orders(0)[0] not in member.fetching()

    member.reply(assigned=[1], number=7, reason="b joins", grant=grant("kh1.second"))
    assert "b joins" in member.questions[0].reason
    member.acknowledge(REVOKED, 0, consumed={0: 5})
    assert member.commits() == {orders(0)[0]: 5}
    member.accept_commit()
    assert listed(beats(member)[-1]) == [1]
    assert not member.troubles()


def test_refused_partition_is_given_up_though_the_coordinator_says_nothing(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED})
    assert not member.questions
    member.advance(100)
    assert "leader" in member.questions[0].reason
    member.acknowledge(REVOKED, 0, consumed={0: 5})
    assert listed(member.expect(OffsetCommitRequest)) == [0]


def test_loss_at_the_end_of_the_session_follows_where_the_member_is_cut_off(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED})
    member.advance(100)
    member.acknowledge(REVOKED, 0, consumed={0: 5})
    member.advance(50_000)
    assert member.state is MemberState.FENCED
    member.acknowledge(LOST, 1)
    assert member.state is MemberState.JOINING


def test_next_assignment_reads_a_refused_partition_again_without_a_seek(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED})
    member.reply(assigned=[1], number=7, grant=grant("kh1.second"))
    member.acknowledge(REVOKED, 0)
    member.reply(assigned=[0, 1], number=8, epoch=2, grant=grant("kh1.third"))
    member.acknowledge(ASSIGNED, 0)
    member.advance(100)
    assert orders(0)[0] in member.fetching()
    assert "kh1.third" in [send.request.grant for send in member.sent(FetchRequest)]  # type: ignore[attr-defined]


def test_partition_that_was_refused_by_mistake_is_asked_for_again(member: ConsumerDialogue) -> None:
    """To the coordinator the member has it all the time, so that only a full heartbeat is told so."""
    answer(member, {0: FENCED})
    member.reply()
    member.acknowledge(REVOKED, 0)
    assert (listed(beats(member)[-1]), beats(member)[-1].rebalance_timeout_ms) == ([1], 300_000)
    member.reply(assigned=[0, 1], number=7)
    member.acknowledge(ASSIGNED, 0)
    assert member.member.owned == set(orders(0, 1))


def test_refusal_of_an_earlier_grant_takes_nothing_from_the_member(member: ConsumerDialogue) -> None:
    """The leader has not seen the one that the member has by now; a refusal of that counts."""
    answer(member, {0: FENCED}, news=update(5, renewed=grant("kh1.second")))
    member.advance(100)
    assert not member.delivered(ReadsRefused)
    assert not member.questions
    assert orders(0)[0] in member.fetching()
    assert answer(member, {0: FENCED}, lane=Lane.FETCH_AT_ONCE).grant == "kh1.second"
    assert [each.partitions for each in member.delivered(ReadsRefused)] == [tuple(orders(0))]


def test_partition_that_is_refused_again_and_again_is_asked_for_ever_more_rarely(member: ConsumerDialogue) -> None:
    """A leader and a coordinator that do not agree cost no processor."""
    sent = len(member.sent(FetchRequest))
    number = 10
    for _ in range(200):
        if any(partition == 0 for _, partition in member.fetching()):
            for send in member.find(FetchRequest):
                assert isinstance(send.request, FetchRequest)
                lane = send.lane
                answer(member, {0: FENCED}, lane=lane)
                break
        if member.find(ConsumerGroupHeartbeatRequest):
            number += 1
            member.reply(assigned=[0, 1], number=number, grant=grant(f"kh1.{number}"))
        if member.questions:
            member.acknowledge(member.questions[0].kind, 0)
        member.advance(10)
    assert 2 <= len(member.sent(FetchRequest)) - sent <= 30


def test_partition_that_is_being_given_up_is_not_given_up_twice(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED}, news=update(5, 1))
    assert not member.delivered(ReadsRefused)
    member.acknowledge(REVOKED, 0)
    assert not member.questions


def test_partition_that_is_refused_during_a_callback_is_given_up_behind_it(member: ConsumerDialogue) -> None:
    answer(member, news=update(5, 0, 1, 2, epoch=2))
    assert member.state is MemberState.ASSIGNING_PARTITIONS
    answer(member, {0: FENCED})
    assert [each.partitions for each in member.delivered(ReadsRefused)] == [tuple(orders(0))]
    member.take(Paused(partitions=orders(0), is_paused=False))
    assert orders(0)[0] not in member.fetching(), "a resume does not read it"
    member.acknowledge(ASSIGNED, 2)
    member.acknowledge(REVOKED, 0)
    assert member.member.owned == set(orders(1, 2))


def test_member_that_leaves_gives_a_refused_partition_up_like_the_others(member: ConsumerDialogue) -> None:
    answer(member, {0: FENCED})
    member.close()
    member.acknowledge(REVOKED, 0, 1)
    assert beats(member)[-1].member_epoch == -1


def test_consumer_without_a_member_reports_the_refusal() -> None:
    """As any other that a broker sends."""
    member = ConsumerDialogue()
    member.stable(0)
    member.machine._member = None
    member.fetching()
    member.serve(errors={0: FENCED})
    assert [trouble.error.code for trouble in member.troubles()] == [FENCED]  # type: ignore[union-attr]


# -- leases -----------------------------------------------------------------------------------------------------------


def test_lease_counts_from_when_the_request_left_that_was_answered(member: ConsumerDialogue) -> None:
    member.advance(INTERVAL_MS)
    sent_ms = member.now_ms
    beats(member)
    member.advance(1_000)
    member.reply(grant=grant("kh1.second"))
    member.settle()
    assert owned_until(member) == pytest.approx(sent_ms + SURE_MS, abs=3)


def test_fetch_renews_it_from_when_the_fetch_left(member: ConsumerDialogue) -> None:
    answer(member)
    sent_ms = member.now_ms
    member.advance(400)
    answer(member, news=update(5, renewed=grant("kh1.second")))
    assert owned_until(member) == pytest.approx(sent_ms + SURE_MS, abs=3)


def lapsed(member: ConsumerDialogue) -> ConsumerDialogue:
    """The lease is over while a heartbeat is under way."""
    member.advance(SURE_MS + 10)
    assert owned_until(member) == 0
    return member


def test_nothing_is_fetched_or_handed_out_when_it_is_over_and_all_goes_on_with_the_next(
    member: ConsumerDialogue,
) -> None:
    answer(lapsed(member), {0: batch(0, 1)})
    assert not fetches(member)
    assert member.state is MemberState.STABLE
    while member.find(ConsumerGroupHeartbeatRequest):
        member.reply(assigned=[0, 1], number=9, grant=grant("kh1.second"))
    assert owned_until(member) != 0
    assert [each.grant for each in fetches(member)] == ["kh1.second"]
    assert not member.questions, "nothing is given up or taken"


def test_coordinator_is_asked_at_once_when_it_is_over(member: ConsumerDialogue) -> None:
    """Beside the heartbeat that is held, by one that lists everything."""
    assert listed(beats(lapsed(member))[-1]) == [0, 1]


def test_refusal_when_it_is_over_takes_nothing_from_the_member(member: ConsumerDialogue) -> None:
    lapsed(member)
    answer(member, {0: FENCED, 1: FENCED})
    member.advance(200)
    assert not member.questions
    while member.find(ConsumerGroupHeartbeatRequest):
        member.reply(assigned=[0, 1], number=9, grant=grant("kh1.second"))
    member.advance(1_000)
    answer(member, {0: batch(0, 1), 1: batch(0, 1)})
    assert [chunk.partition for chunk in member.chunks()] == orders(0, 1)


def test_coordinator_that_no_longer_enforces_anything_gives_none(member: ConsumerDialogue) -> None:
    """An answer to a heartbeat behind the lease, and no grant in it."""
    lapsed(member)
    answer(member)
    while member.find(ConsumerGroupHeartbeatRequest):
        member.reply(assigned=[0, 1], number=9)
    assert owned_until(member) not in (0, None)
    assert [each.grant for each in fetches(member)] == [""], "leaders forget it"
    answer(member)
    assert [each.grant for each in fetches(member)] == [None]


def test_grant_that_does_not_cover_a_new_assignment_is_dropped(member: ConsumerDialogue) -> None:
    """No token can name so many partitions; leaders know the member by its tag."""
    answer(member, news=update(5, 0, 1, 2))
    member.acknowledge(ASSIGNED, 2)
    member.reply()
    assert owned_until(member) == pytest.approx(member.now_ms + 44_550, abs=20)


def test_grant_that_several_answers_tell_ends_as_the_latest_of_them_says(member: ConsumerDialogue) -> None:
    until_ms, grants = owned_until(member), member.delivered(OwnedUntil)[-1].grants
    assert until_ms is not None
    answer(member, news=update(5, renewed=grant(lease_ms=LEASE_MS - 5_000)))
    assert owned_until(member) == until_ms
    answer(member, news=update(6, renewed=grant(lease_ms=LEASE_MS + 5_000)))
    later_ms = owned_until(member)
    assert later_ms is not None and later_ms > until_ms + 4_000
    assert member.delivered(OwnedUntil)[-1].grants == grants == 1


def test_heartbeats_come_thrice_in_a_lease() -> None:
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(assigned=[0], number=1, grant=grant(lease_ms=3_000))
    member.acknowledge(ASSIGNED, 0)
    member.reply(interval_ms=5_000)
    member.advance(990)
    assert not beats(member)
    member.advance(20)
    assert beats(member)


def test_heartbeat_that_was_answered_with_a_renewed_grant_is_followed_by_one_that_is_held(
    member: ConsumerDialogue,
) -> None:
    """The coordinator does not hold what it owes; a member between two heartbeats hears of no move."""
    member.advance(INTERVAL_MS)
    member.reply(grant=grant("kh1.second"))
    assert len(beats(member)) == 1
    member.reply()
    assert not beats(member)


def test_grant_ends_with_the_membership(member: ConsumerDialogue) -> None:
    member.advance(INTERVAL_MS)
    member.reply(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.acknowledge(LOST, 0, 1)
    member.reply(epoch=3, assigned=[0])
    member.acknowledge(ASSIGNED, 0)
    member.settle()
    assert owned_until(member) == pytest.approx(member.now_ms + 44_550, abs=20)


# -- release with the last commit -------------------------------------------------------------------------------------


def revoking(member: ConsumerDialogue) -> OffsetCommitRequest:
    """Partition 1 goes, and what was consumed of it is committed."""
    answer(member, news=update(5, 0))
    member.acknowledge(REVOKED, 1, consumed={1: 4})
    return member.expect(OffsetCommitRequest)


def test_last_commit_says_that_its_partitions_are_free(member: ConsumerDialogue) -> None:
    assert listed(revoking(member)) == [1]
    assert not beats(member)
    member.accept_commit()
    assert [listed(each) for each in beats(member)] == [[0]], "told again, since not every coordinator knows the field"


def test_apache_kafka_is_told_by_a_heartbeat_alone() -> None:
    member = ConsumerDialogue()
    member.stable(0, 1)
    member.advance(INTERVAL_MS)
    member.reply(assigned=[0])
    member.acknowledge(REVOKED, 1, consumed={1: 4})
    commit = member.accept_commit()
    assert (commit.released, commit.grant, commit.member) == (None, None, None)
    assert listed(beats(member)[-1]) == [0]


def test_commit_by_the_application_in_its_callback_is_not_the_last_one(member: ConsumerDialogue) -> None:
    """It may go on to process; the heartbeat behind the callback says that the partitions are free."""
    answer(member, news=update(5, 0))
    member.start_callback()
    member.take(CommitAsked(offsets={orders(1)[0]: 4}, ticket="t", deadline_ms=member.now_ms + 9_000))
    assert member.accept_commit().released is None
    member.acknowledge(REVOKED, 1)
    assert not member.find(OffsetCommitRequest)
    assert listed(beats(member)[-1]) == [0]


def test_commit_behind_which_another_waits_is_not_the_last_one(member: ConsumerDialogue) -> None:
    """Asked for in the callback, and not sent before it has returned."""
    answer(member, news=update(5, 0))
    member.start_callback()
    for offset in (3, 4):
        asked = AsynchronousCommitAsked(
            offsets={orders(1)[0]: offset}, callback=print, deadline_ms=member.now_ms + 9_000
        )
        member.take(asked)
    member.acknowledge(REVOKED, 1)
    assert member.accept_commit().released is None
    assert member.accept_commit().released is None
    assert listed(beats(member)[-1]) == [0]


def test_release_without_an_answer_is_said_again_and_not_at_a_later_epoch(member: ConsumerDialogue) -> None:
    """The first one may have arrived: then another member has committed behind it by now."""
    commit = revoking(member)
    member.fail(commit, Failure.DISCONNECTED)
    member.advance(1_000)
    again = member.expect(OffsetCommitRequest)
    assert (listed(again), again.generation_id_or_member_epoch) == ([1], 1)
    member.accept_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.advance(1_000)
    assert not member.find(OffsetCommitRequest)
    assert listed(beats(member)[-1]) == [0]


def test_release_that_is_refused_is_tried_again_at_the_new_epoch(member: ConsumerDialogue) -> None:
    """Nothing of it was carried out."""
    revoking(member)
    member.advance(INTERVAL_MS)
    (beat,) = beats(member)
    member.accept_commit(ErrorCode.STALE_MEMBER_EPOCH)
    response = heartbeat.ConsumerGroupHeartbeatResponse(
        member_id="m-1", member_epoch=2, heartbeat_interval_ms=INTERVAL_MS
    )
    member.answer(beat, response, version=1)
    member.advance(1_000)
    again = member.expect(OffsetCommitRequest)
    assert (listed(again), again.generation_id_or_member_epoch) == ([1], 2)


def test_member_that_leaves_releases_nothing_by_a_commit(member: ConsumerDialogue) -> None:
    """The coordinator would assign it again."""
    member.close()
    member.acknowledge(REVOKED, 0, 1, consumed={0: 4})
    assert member.accept_commit().released is None


# -- liveness by fetches ----------------------------------------------------------------------------------------------


@pytest.fixture
def counted() -> ConsumerDialogue:
    """A member whose fetches count as heartbeats."""
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(assigned=(0, 1), number=1, counts_fetches=True)
    member.acknowledge(ASSIGNED, 0, 1)
    member.reply(grant=grant(), counts_fetches=True, session_ms=45_000)
    member.fetching()
    return member


def fetch_on(member: ConsumerDialogue, ms: int, *, renews: bool = True) -> int:
    """Time in which each fetch is answered after half a second, and the grant renewed; returns the heartbeats sent."""
    before = len(member.sent(ConsumerGroupHeartbeatRequest))
    until_ms, number = member.now_ms + ms, 1_000 + member.now_ms
    while member.now_ms < until_ms:
        member.advance(500)
        number += 1
        renewed = update(number, renewed=grant(f"kh1.{number}")) if renews and number % 14 == 0 else None
        answer(member, news=renewed)
    return len(member.sent(ConsumerGroupHeartbeatRequest)) - before


def test_settled_member_that_fetches_sends_no_heartbeat_and_keeps_its_partitions(counted: ConsumerDialogue) -> None:
    for _ in range(10):
        assert fetch_on(counted, 30_000) == 0
        counted.poll()
    assert counted.state is MemberState.STABLE
    until_ms = owned_until(counted)
    assert until_ms is not None and until_ms > counted.now_ms


def test_member_that_does_not_fetch_heartbeats_as_before(counted: ConsumerDialogue) -> None:
    fetch_on(counted, 10_000)
    counted.take(Paused(partitions=orders(0, 1), is_paused=True))
    counted.settle()
    counted.advance(INTERVAL_MS)
    assert len(beats(counted)) == 1


def test_member_that_has_something_to_say_heartbeats_at_once(counted: ConsumerDialogue) -> None:
    fetch_on(counted, 10_000)
    answer(counted, news=update(999_999_999, 0))
    counted.acknowledge(REVOKED, 1)
    assert listed(beats(counted)[-1]) == [0]


def test_coordinator_that_stops_to_renew_the_grant_is_asked(counted: ConsumerDialogue) -> None:
    """It may not be the coordinator any more, and answers fetches as a leader."""
    assert fetch_on(counted, LEASE_MS * 2 // 3 + 1_000, renews=False) == 1


def test_without_grants_the_coordinator_is_asked_thrice_in_a_session() -> None:
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(assigned=(0, 1), number=1)
    member.acknowledge(ASSIGNED, 0, 1)
    member.reply(counts_fetches=True, session_ms=45_000)
    assert fetch_on(member, 14_000, renews=False) == 0
    assert fetch_on(member, 2_000, renews=False) == 1


def test_application_that_does_not_poll_is_not_kept_alive_by_fetches(counted: ConsumerDialogue) -> None:
    """The member leaves after max.poll.interval.ms, as ever, and fetches nothing more."""
    counted.advance(1)
    while counted.state is MemberState.STABLE:
        counted.advance(500)
        if fetches(counted):
            answer(counted, news=update(counted.now_ms, renewed=grant(f"kh1.{counted.now_ms}")))
    assert beats(counted)[-1].member_epoch == -1
    assert not fetches(counted)


def test_failed_fetch_is_no_sign_of_life(counted: ConsumerDialogue) -> None:
    fetch_on(counted, 10_000)
    heard_ms = owned_until(counted)
    counted.fail(fetches(counted)[0], Failure.DISCONNECTED)
    counted.advance(1_000)
    assert owned_until(counted) == heard_ms


def test_group_that_does_not_count_fetches_gets_heartbeats(member: ConsumerDialogue) -> None:
    assert fetch_on(member, INTERVAL_MS + 1_000) == 1

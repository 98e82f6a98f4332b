"""Dialogues with members that are cut off from their coordinator: until when they read, and what ends that sooner; and
what the application's side hands out meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from kohort import aio
from kohort.client.consumer.application_events import AsynchronousCommitAsked, CallbackKind, Chunk, Fence, OwnedUntil
from kohort.client.consumer.consumer import Consumer
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest
from kohort.wire.messages.membership import MembershipUpdate
from kohort.wire.messages.sync_group import SyncGroupRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch, orders
from support.dialogues.rig import Puppet

LOST = CallbackKind.LOST
#: A hundredth of a session is left out, for clocks that differ.
SESSION_MS, SURE_MS = 6_000, 5_940
INTERVAL_MS = 2_000


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest with the partitions 0 and 1, in a group whose session is shorter than its own, at a broker of ours."""
    member = ConsumerDialogue()
    member.is_kohort = True
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(session_ms=SESSION_MS, interval_ms=INTERVAL_MS)
    member.fetching()
    return member


@pytest.fixture
def classic() -> ClassicDialogue:
    member = ClassicDialogue(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS)
    member.at_rest(0, 1)
    # The one before was cut by the question for offsets.
    member.beaten()
    member.advance(INTERVAL_MS)
    member.beaten()
    member.fetching()
    return member


def owned_for_ms(member: ConsumerDialogue) -> int | None:
    """How long the application's side may still hand out what it has; 0: not at all, `None`: there is no such time.

    In hundredths of a second, rounded up: a dialogue takes some milliseconds for each step.
    """
    until_ms = member.delivered(OwnedUntil)[-1].until_ms
    assert until_ms is None or isinstance(until_ms, int)
    return -(-(until_ms - member.now_ms) // 10) * 10 if until_ms else until_ms


def heartbeats(member: ConsumerDialogue, lane: Lane = Lane.COORDINATOR) -> list[ConsumerGroupHeartbeatRequest]:
    """Those under way."""
    found = [each.request for each in member.find(ConsumerGroupHeartbeatRequest) if each.lane is lane]
    return [each for each in found if isinstance(each, ConsumerGroupHeartbeatRequest)]


# -- the session ------------------------------------------------------------------------------------------------------


def test_session_of_the_group_counts_from_when_the_heartbeat_left_that_was_answered(member: ConsumerDialogue) -> None:
    """The coordinator counts from when it came, and may have held the answer."""
    member.advance(INTERVAL_MS)
    member.heartbeat()
    member.advance(1_500)
    member.reply(session_ms=SESSION_MS, interval_ms=INTERVAL_MS)
    member.settle()
    assert owned_for_ms(member) == SURE_MS - 1_500

    member.advance(SURE_MS - 1_510)
    assert member.state is MemberState.STABLE
    member.advance(10)

    assert member.state is MemberState.FENCED
    assert owned_for_ms(member) == 0
    assert member.fetching() == {}
    member.acknowledge(LOST, 0, 1)
    assert owned_for_ms(member) is None


def test_own_session_counts_where_it_is_shorter_than_the_groups() -> None:
    """An application that wants to be sure of less."""
    member = ConsumerDialogue(session_timeout_ms=SESSION_MS)
    member.stable(0)
    member.advance(INTERVAL_MS)
    member.reply(session_ms=45_000)
    member.settle()
    assert owned_for_ms(member) == SURE_MS


def test_own_session_counts_where_the_coordinator_tells_none() -> None:
    """Apache Kafka's does not; the defaults of both are the same."""
    member = ConsumerDialogue()
    member.stable(0)
    member.settle()
    assert owned_for_ms(member) == 44_550


def test_heartbeats_come_thrice_in_a_session_whatever_the_coordinator_says(member: ConsumerDialogue) -> None:
    """Two that are held, one behind the other, are answered before it ends."""
    member.advance(INTERVAL_MS)
    member.reply(session_ms=SESSION_MS, interval_ms=5_000)

    member.advance(INTERVAL_MS - 10)
    assert not heartbeats(member)
    member.advance(10)
    assert heartbeats(member)


def test_refused_heartbeat_prolongs_nothing(member: ConsumerDialogue) -> None:
    """Neither does the coordinator count it."""
    member.advance(INTERVAL_MS)
    member.reply(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    member.settle()
    assert owned_for_ms(member) == SURE_MS - INTERVAL_MS


def test_unanswered_heartbeat_leaves_time_for_another_connection(member: ConsumerDialogue) -> None:
    """A connection that is silently dead is given up before the session ends."""
    member.advance(INTERVAL_MS)
    member.settle()
    (send,) = member.find(ConsumerGroupHeartbeatRequest)
    assert send.timeout_ms == 4_000


def test_what_a_former_group_session_was_is_forgotten_with_the_membership(member: ConsumerDialogue) -> None:
    member.advance(INTERVAL_MS)
    member.reply(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.acknowledge(LOST, 0, 1)
    member.reply(epoch=3, assigned=[0])
    member.acknowledge(CallbackKind.ASSIGNED, 0)
    assert owned_for_ms(member) == 44_550


def test_classic_session_counts_from_when_the_heartbeat_left_that_was_answered(classic: ClassicDialogue) -> None:
    classic.advance(INTERVAL_MS)
    classic.settle()
    classic.advance(1_500)
    classic.beaten()
    assert owned_for_ms(classic) == SURE_MS - 1_500

    classic.advance(SURE_MS - 1_500)

    assert classic.state is MemberState.FENCED
    assert owned_for_ms(classic) == 0


def test_assignment_that_took_long_is_no_silence_of_the_coordinator() -> None:
    """SyncGroup waits for the leader: its session begins with the answer, half of which is left for the way here."""
    member = ClassicDialogue(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=INTERVAL_MS)
    member.subscribe()
    member.require_member_id()
    member.joined()
    member.expect(SyncGroupRequest)
    member.advance(20_000)
    member.synced([0])
    member.acknowledge(CallbackKind.ASSIGNED, 0)
    assert member.state is MemberState.STABLE
    assert owned_for_ms(member) == SURE_MS - SESSION_MS // 2


def test_member_that_keeps_what_it_has_while_it_joins_hands_it_out_for_a_session() -> None:
    """Its JoinGroup may have arrived, and the others may take long, or not: then others have its partitions by now."""
    member = ClassicDialogue(
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=INTERVAL_MS,
        partition_assignment_strategy="cooperative-sticky",
    )
    member.at_rest(0, 1)
    member.beaten()
    member.advance(INTERVAL_MS)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    member.expect(JoinGroupRequest)
    assert owned_for_ms(member) == SURE_MS

    member.advance(20_000)
    until_ms = owned_for_ms(member)
    assert until_ms is not None and until_ms < 0
    assert member.member.owned == set(orders(0, 1)), "it is not lost: the group may be slow"

    member.joined(2, protocol="cooperative-sticky")
    member.synced([0, 1])
    assert member.state is MemberState.STABLE
    assert owned_for_ms(member) == SURE_MS


# -- refusals ---------------------------------------------------------------------------------------------------------


def refuse_by_fetch(member: ConsumerDialogue, *, epoch: int = 1, number: int = 9) -> None:
    """A fetch is answered with records, and with the word that its member is none."""
    member.settle()
    (request,) = [each.request for each in member.find(FetchRequest) if each.lane is Lane.FETCH]
    assert isinstance(request, FetchRequest)
    data = PartitionData(partition_index=0, high_watermark=3, last_stable_offset=3, log_start_offset=0)
    data.records = memoryview(batch(0, 3))
    code = ErrorCode.UNKNOWN_MEMBER_ID
    response = FetchResponse(
        session_id=7,
        responses=[FetchableTopicResponse(topic="orders", topic_id=ORDERS, partitions=[data])],
        membership_update=MembershipUpdate(number=number, error_code=code, member_id="m-1", member_epoch=epoch),
    )
    member.answer(request, response, version=17)


def test_refusal_beside_records_is_known_before_them(member: ConsumerDialogue) -> None:
    """They are the next owner's; a heartbeat that is under way, and that nobody will answer, is in no way."""
    member.advance(INTERVAL_MS)
    assert len(heartbeats(member)) == 1
    before = len(member.actions)

    refuse_by_fetch(member)

    told = [
        each.item for each in member.actions[before:] if isinstance(getattr(each, "item", None), OwnedUntil | Chunk)
    ]
    assert isinstance(told[0], OwnedUntil) and told[0].until_ms == 0
    assert any(isinstance(each, Chunk) for each in told)
    (asked,) = heartbeats(member, Lane.FETCH)
    assert (asked.member_id, asked.member_epoch, asked.topic_partitions) == ("m-1", 1, None)
    assert owned_for_ms(member) == 0


def test_refusal_is_a_loss_if_no_heartbeat_is_answered_within_an_interval(member: ConsumerDialogue) -> None:
    member.advance(INTERVAL_MS)
    refuse_by_fetch(member)

    member.advance(INTERVAL_MS - 1)
    assert member.state is MemberState.STABLE
    member.advance(1)

    assert member.state is MemberState.FENCED
    assert owned_for_ms(member) == 0
    lost = member.acknowledge(LOST, 0, 1)
    assert "UNKNOWN_MEMBER_ID" in member.warnings()[-1], lost


def test_refusal_that_a_heartbeat_confirms_is_a_loss_at_once(member: ConsumerDialogue) -> None:
    refuse_by_fetch(member)
    (asked,) = heartbeats(member, Lane.FETCH)
    answer = ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, error_message="gone")
    member.answer(asked, answer, version=1)

    assert member.state is MemberState.FENCED
    assert "UNKNOWN_MEMBER_ID: gone" in member.warnings()[-1]


@pytest.mark.parametrize("lane", [Lane.FETCH, Lane.COORDINATOR])
def test_refusal_is_over_when_a_heartbeat_behind_it_is_answered_well(member: ConsumerDialogue, lane: Lane) -> None:
    """By whichever connection it goes: then the member is one, and what has come meanwhile is its own."""
    refuse_by_fetch(member)
    member.settle()
    (asked,) = heartbeats(member, lane)
    answer = ConsumerGroupHeartbeatResponse(
        member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS
    )
    member.answer(asked, answer, version=1)

    assert owned_for_ms(member) == SURE_MS
    member.advance(INTERVAL_MS - 1)
    assert member.state is MemberState.STABLE


def test_heartbeat_that_left_before_a_refusal_says_nothing_of_it(member: ConsumerDialogue) -> None:
    """Its answer may be from before."""
    member.advance(INTERVAL_MS)
    member.heartbeat()
    member.advance(10)
    refuse_by_fetch(member)
    before = next(each for each in heartbeats(member) if each.topic_partitions is None)
    answer = ConsumerGroupHeartbeatResponse(
        member_epoch=1, heartbeat_interval_ms=INTERVAL_MS, session_timeout_ms=SESSION_MS
    )
    member.answer(before, answer, version=1)
    assert owned_for_ms(member) == 0


def test_refusal_of_an_earlier_epoch_is_none(member: ConsumerDialogue) -> None:
    member.advance(INTERVAL_MS)
    member.reply(epoch=2, session_ms=SESSION_MS, interval_ms=INTERVAL_MS)
    refuse_by_fetch(member, epoch=1)
    assert owned_for_ms(member) == SURE_MS


def test_refusal_that_was_told_before_the_latest_assignment_is_none(member: ConsumerDialogue) -> None:
    """Another connection was slower: since then the coordinator has let the member in, or knew it all the time."""
    member.advance(INTERVAL_MS)
    member.reply(assigned=[0, 1], number=10, session_ms=SESSION_MS, interval_ms=INTERVAL_MS)
    refuse_by_fetch(member, number=9)
    assert owned_for_ms(member) == SURE_MS


def test_refusal_is_heard_while_the_coordinator_is_looked_for(member: ConsumerDialogue) -> None:
    """Whoever is cut off does not know where it is."""
    member.advance(INTERVAL_MS)
    member.fail(member.heartbeat(), Failure.TIMED_OUT)
    refuse_by_fetch(member)
    assert owned_for_ms(member) == 0


def refuse_by_commit(member: ConsumerDialogue, code: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
    member.take(AsynchronousCommitAsked(offsets={orders(0)[0]: 2}, callback=None, deadline_ms=member.now_ms + 9_000))
    member.settle()
    member.accept_commit(code)


@pytest.mark.parametrize(
    "code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID, ErrorCode.OFFSET_METADATA_TOO_LARGE]
)
def test_commit_that_is_refused_for_what_it_says_is_no_refusal_of_the_member(
    member: ConsumerDialogue, code: ErrorCode
) -> None:
    """It reads on."""
    refuse_by_commit(member, code)
    assert owned_for_ms(member) not in (0, None)
    member.advance(INTERVAL_MS)
    assert member.state is MemberState.STABLE


def test_commit_that_is_refused_is_a_refusal_too(member: ConsumerDialogue) -> None:
    """At every broker: Apache Kafka tells it so as well."""
    member.advance(INTERVAL_MS)
    refuse_by_commit(member)
    assert owned_for_ms(member) == 0
    assert len(heartbeats(member)) == 2
    member.advance(INTERVAL_MS)
    assert member.state is MemberState.FENCED


def test_classic_commit_that_is_refused_is_a_refusal_too(classic: ClassicDialogue) -> None:
    classic.advance(INTERVAL_MS)
    before = classic.expect(HeartbeatRequest)
    refuse_by_commit(classic)
    assert owned_for_ms(classic) == 0
    assert [each.request for each in classic.find(HeartbeatRequest)] != [before]
    classic.advance(INTERVAL_MS)
    assert classic.state is MemberState.FENCED


# -- the application's side -------------------------------------------------------------------------------------------


class Door:
    """A consumer's door with three records of a partition, and no machine behind it that does anything by itself."""

    def __init__(self, kind: type[Any] = Consumer) -> None:
        self.consumer: Any = kind(bootstrap_servers="127.0.0.1:1", group_id="g", consumer_timeout_ms=0)
        self.consumer._context.host._machine = Puppet()
        self.consumer._subscriptions.is_assigned_by_hand = True
        partition = TopicPartition("orders", 0)
        self.consumer._context.handler.hold([partition])
        data = batch(0, 3)
        chunk = Chunk(
            partition=partition,
            fence=Fence(1),
            offset=0,
            next_offset=3,
            records=memoryview(data),
            size_bytes=len(data),
            aborted=[],
            leader_epoch=0,
        )
        self.consumer._context.deliveries.deliver(chunk)

    def owns_for(self, seconds: float) -> None:
        """What has come may be handed out for so long."""
        until_ms = self.consumer._context.host.now_ms() + int(seconds * 1000)
        self.consumer._context.deliveries.deliver(OwnedUntil(until_ms=until_ms))

    def end(self) -> None:
        self.consumer._context.host.stop()
        self.consumer._context.is_closed = True


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door()
    yield door
    door.end()


WAYS: dict[str, Callable[[Consumer], Any]] = {
    "poll": lambda consumer: consumer.poll(0),
    "poll_one": lambda consumer: consumer.poll_one(0),
    "consume": lambda consumer: consumer.consume(3, 0),
    "poll_arrow": lambda consumer: consumer.poll_arrow(0),
    "iteration": lambda consumer: next(iter(consumer), None),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_handed_out_of_what_may_be_anothers(door: Door, way: str) -> None:
    """Whichever way it is asked for; what has come is there again when the member is sure of it."""
    door.owns_for(-0.001)
    assert not WAYS[way](door.consumer)
    door.consumer._context.deliveries.deliver(OwnedUntil(until_ms=0))
    assert not WAYS[way](door.consumer)
    door.owns_for(60)
    assert WAYS[way](door.consumer)


AIO_WAYS: dict[str, Callable[[aio.Consumer], Awaitable[Any]]] = {
    "poll": lambda consumer: consumer.poll(0),
    "poll_one": lambda consumer: consumer.poll_one(0),
    "getmany": lambda consumer: consumer.getmany(),
    "consume": lambda consumer: consumer.consume(3, 0),
    "poll_arrow": lambda consumer: consumer.poll_arrow(0),
    "iteration": lambda consumer: anext(consumer, None),
}


@pytest.mark.parametrize("way", AIO_WAYS)
def test_nothing_is_handed_out_of_what_may_be_anothers_on_an_event_loop(way: str) -> None:
    """The same door, asked by a task; a quick way that has handed out one record knows of it, too."""

    async def ask() -> None:
        door = Door(aio.Consumer)
        door.owns_for(-0.001)
        assert not await AIO_WAYS[way](door.consumer)
        door.owns_for(60)
        assert await AIO_WAYS["poll_one"](door.consumer)
        door.consumer._context.deliveries.deliver(OwnedUntil(until_ms=0))
        assert not await AIO_WAYS[way](door.consumer)
        door.owns_for(60)
        assert await AIO_WAYS[way](door.consumer)
        door.end()
        await door.consumer._context.host.join(1)

    asyncio.run(ask())


class StillClock:
    """Every clock of the machine, which goes on when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0.0
        for name in ("clock_gettime", "clock_gettime_ns", "monotonic", "monotonic_ns", "time_ns"):
            monkeypatch.setattr(time, name, partial(self._read, getattr(time, name), {}, name.endswith("_ns")))

    def _read(self, clock: Callable[..., Any], began: dict[Any, Any], is_ns: bool, *which: int) -> Any:
        first = began.setdefault(which, clock(*which))
        return first + int(self.ahead_s * 10**9) if is_ns else first + self.ahead_s


@pytest.mark.parametrize(("sure_s", "passed_s"), [(30.0, 31.0), (0.02, 0.03)], ids=["slept", "went by"])
def test_records_that_are_ready_are_not_handed_out_when_the_time_is_over(
    door: Door, monkeypatch: pytest.MonkeyPatch, sure_s: float, passed_s: float
) -> None:
    """The application's thread may go on before the background does; the third was made ready with the second."""
    clock = StillClock(monkeypatch)
    door.owns_for(sure_s)
    assert [record.offset for record in (door.consumer.poll_one(0), door.consumer.poll_one(0))] == [0, 1]
    clock.ahead_s = passed_s

    assert door.consumer.poll_one(0) is None
    door.owns_for(30)
    third = door.consumer.poll_one(0)
    assert third is not None and third.offset == 2


def test_record_that_is_ready_is_not_handed_out_behind_a_refusal(door: Door) -> None:
    door.owns_for(30)
    assert [record.offset for record in (door.consumer.poll_one(0), door.consumer.poll_one(0))] == [0, 1]
    door.consumer._context.deliveries.deliver(OwnedUntil(until_ms=0))
    for _ in range(3):
        assert door.consumer.poll_one(0) is None

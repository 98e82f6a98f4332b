"""The consumer's machine under anything a cluster and an application may do, in any order.

Laws checked: it never takes a step that is not in its table, never spins, never fetches a partition that the
application does not hold or is being asked to give up, ends every ticket once, and always closes. What it commits was
done, and no commit takes an offset back behind a later one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.client.consumer.application_events import (
    AsynchronousCommitAsked,
    CallbackDone,
    CallbackKind,
    Chunk,
    ChunkTaken,
    CommitAsked,
    CommitEnded,
    Fence,
    GiveWay,
    Paused,
    Polled,
    Sought,
    Start,
    Subscribed,
    Unsubscribed,
)
from kohort.client.core.actions import Complete, Fail, Send
from kohort.client.core.requests import Failure, RequestFailed
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.embedded import encode_assignment, encode_subscription
from kohort.wire.messages import consumer_group_describe, describe_groups
from kohort.wire.messages import consumer_group_heartbeat as heartbeat
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.list_offsets import ListOffsetsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from kohort.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch, orders, read_commit

COORDINATOR_ERRORS = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID,
]
HEARTBEAT_ERRORS = [
    *COORDINATOR_ERRORS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,
]
CLASSIC_ERRORS = [
    *COORDINATOR_ERRORS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
]
FETCH_ERRORS = [
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


class Walk(ConsumerDialogue):
    """Draws what happens next."""

    def __init__(self, seed: int, protocol: str) -> None:
        self.draw = random.Random(seed)
        self.assignor = "cooperative-sticky" if protocol == "cooperative" else "range"
        super().__init__(
            group_protocol="consumer" if protocol == "consumer" else "classic",
            **({} if self.assignor == "range" else {"partition_assignment_strategy": self.assignor}),
            auto_commit_interval_ms=700,
            session_timeout_ms=9_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=12_000,
            revocation_timeout_policy=self.draw.choice(["retry_then_leave", "leave", "retry"]),
            fetch_buffer_bytes=self.draw.choice([600, 100_000]),
        )
        #: partition -> fence, as the application holds it.
        self.held: dict[TopicPartition, Fence] = {}
        self.tickets: list[str] = []
        self.asynchronous: list[str] = []
        #: Offsets that the application commits itself, ever higher, far above those that it returns from.
        self.next_commit = 1_000
        #: What it has returned from, and the highest offset of its own commits that was stored.
        self.done: dict[TopicPartition, set[int]] = {each: set() for each in orders(*range(4))}
        self.stored = dict.fromkeys(orders(*range(4)), 0)
        self.generation = 0
        self.checked = 0

    def take(self, event: Any) -> list[Any]:
        actions = super().take(event)
        self.check_fetches()
        return actions

    def check_fetches(self) -> None:
        leaving = {
            each for asked in self.questions if asked.kind is not CallbackKind.ASSIGNED for each in asked.partitions
        }
        for action in self.actions[self.checked :]:
            if isinstance(action, Send) and isinstance(action.request, FetchRequest):
                wanted = {
                    TopicPartition(topic.topic, entry.partition)
                    for topic in action.request.topics
                    for entry in topic.partitions
                }
                assert wanted <= self.held.keys() - leaving, f"fetches {wanted}, holds {set(self.held)} minus {leaving}"
        self.checked = len(self.actions)

    # -- the application --------------------------------------------------------------------------------------------

    def act(self) -> None:
        name = self.draw.choice(
            ["poll"] * 6
            + ["answer_question"] * 6
            + ["start_callback", "take", "seek", "pause", "give_way", "commit", "resubscribe", "restart"]
        )
        getattr(self, f"act_{name}")()

    def act_poll(self) -> None:
        consumed = {each: self.do_something(each) for each in self.held if self.draw.random() < 0.3}
        self.take(Polled(consumed=consumed))

    def do_something(self, partition: TopicPartition) -> int:
        """The offset below which the application has returned."""
        offset = self.draw.randrange(100)
        self.done.setdefault(partition, set()).add(offset)
        return offset

    def act_answer_question(self) -> None:
        if not self.questions:
            return
        question = self.questions[0]
        starts: Mapping[TopicPartition, Start] = {}
        consumed = {}
        for each in question.partitions:
            if question.kind is CallbackKind.ASSIGNED:
                starts = self._starts_for(question)
                self.held[each] = starts[each].fence
            else:
                self.held.pop(each, None)
                consumed[each] = self.do_something(each)
        del self.questions[0]
        self.take(CallbackDone(number=question.number, consumed=consumed, starts=starts))

    def act_start_callback(self) -> None:
        if self.questions:
            self.start_callback()

    def act_take(self) -> None:
        for chunk in self.delivered(Chunk):
            self.take(ChunkTaken(sizes={chunk.partition: chunk.size_bytes}))
        self.forget_delivered(Chunk)

    def forget_delivered(self, kind: type[object]) -> None:
        self.actions = [each for each in self.actions if not isinstance(getattr(each, "item", None), kind)]
        self.checked = len(self.actions)

    def act_seek(self) -> None:
        if self.held:
            partition = self.draw.choice(sorted(self.held))
            fence = self.new_fence()
            self.held[partition] = fence
            self.take(Sought(partition=partition, fence=fence, offset=self.draw.randrange(50)))

    def act_pause(self) -> None:
        if self.held:
            partition = self.draw.choice(sorted(self.held))
            self.take(Paused(partitions=(partition,), is_paused=self.draw.random() < 0.5))

    def act_give_way(self) -> None:
        for each in self.delivered(GiveWay):
            if self.held.get(each.partition) == each.fence:
                fence = self.held[each.partition] = self.new_fence()
                self.take(Sought(partition=each.partition, fence=fence, offset=self.draw.randrange(50)))
        self.forget_delivered(GiveWay)

    def act_commit(self) -> None:
        is_asynchronous = self.draw.random() < 0.5
        tickets = self.asynchronous if is_asynchronous else self.tickets
        ticket = f"commit-{is_asynchronous}-{len(tickets)}"
        tickets.append(ticket)
        self.next_commit += 1
        offsets = dict.fromkeys(orders(*self.draw.sample(range(4), 2)), self.next_commit)
        deadline = self.now_ms + self.draw.choice([50, 5_000])
        if is_asynchronous:
            self.take(AsynchronousCommitAsked(offsets=offsets, callback=ticket, deadline_ms=deadline))
        else:
            self.take(CommitAsked(offsets=offsets, ticket=ticket, deadline_ms=deadline))

    def check_commit(self, request: OffsetCommitRequest) -> None:
        """What is stored was done, or is newer than all that the application committed before."""
        for partition, offset in read_commit(request).items():
            if offset < 1_000:
                assert offset in self.done[partition], f"{partition} was not read up to {offset}"
            else:
                assert offset >= self.stored[partition], f"{partition} goes back from {self.stored[partition]}"
                self.stored[partition] = offset

    def act_resubscribe(self) -> None:
        self.take(Subscribed(topics=self.draw.choice([("orders",), ("orders", "nosuch")])))

    def act_restart(self) -> None:
        if self.draw.random() < 0.2:
            ticket = f"unsubscribe-{len(self.tickets)}"
            self.tickets.append(ticket)
            self.take(Unsubscribed(ticket=ticket, deadline_ms=self.now_ms + 1_000))
            for _ in range(200):
                if self.ended(ticket) is not None:
                    break
                self.act_answer_question()
                self.react(calm=True)
                self.advance(50)
            assert self.ended(ticket) is not None, f"unsubscribe hangs in {self.state}"
            self.held.clear()
            self.take(Subscribed(topics=("orders",)))

    # -- the cluster ------------------------------------------------------------------------------------------------

    def react(self, *, calm: bool = False) -> None:
        """Answer one open request, well or badly."""
        if not self.open:
            return
        send = self.draw.choice(self.open)
        if not calm and self.draw.random() < 0.08:
            self.open.remove(send)
            failure = self.draw.choice([Failure.DISCONNECTED, Failure.TIMED_OUT, Failure.UNREACHABLE])
            self.take(RequestFailed(token=send.token, failure=failure, detail="drawn"))
            return
        self.respond(send, is_good=calm or self.draw.random() < 0.8)

    def respond(self, send: Send, *, is_good: bool) -> None:
        request = send.request
        match request:
            case MetadataRequest():
                self.answer(request, self.metadata(request))
            case ListOffsetsRequest():
                self.answer(request, self.offsets(request))
            case OffsetFetchRequest():
                stale = ErrorCode.NONE if is_good else ErrorCode.STALE_MEMBER_EPOCH
                self.answer(request, self.committed_offsets(request, stale))
            case FindCoordinatorRequest():
                self.by_hand.discard(FindCoordinatorRequest)
                self.advance(0)
            case FetchRequest():
                self.respond_fetch(request, is_good=is_good)
            case OffsetCommitRequest():
                errors = [*COORDINATOR_ERRORS, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
                if is_good:
                    self.check_commit(request)
                self.accept_commit(ErrorCode.NONE if is_good else self.draw.choice(errors))
            case ConsumerGroupHeartbeatRequest():
                self.respond_heartbeat(request, is_good=is_good)
            case _:
                self.respond_classic(request, is_good=is_good)

    def respond_fetch(self, request: FetchRequest, *, is_good: bool) -> None:
        entries = [entry for topic in request.topics for entry in topic.partitions]
        data = {entry.partition: batch(entry.fetch_offset, 3) for entry in entries if self.draw.random() < 0.5}
        bad = {} if is_good else {entries[0].partition: self.draw.choice(FETCH_ERRORS)}
        self.serve_one(request, data, bad)

    def respond_heartbeat(self, request: ConsumerGroupHeartbeatRequest, *, is_good: bool) -> None:
        error = ErrorCode.NONE if is_good else self.draw.choice(HEARTBEAT_ERRORS)
        if error is ErrorCode.UNSUPPORTED_VERSION and request.member_epoch != 0:
            error = ErrorCode.NOT_COORDINATOR
        self.generation += self.draw.choice([0, 0, 1])
        assignment = None
        if request.member_epoch == 0 or self.draw.random() < 0.5:
            ids = self.draw.sample([ORDERS, b"unknown".ljust(16, b".")], self.draw.choice([1, 1, 2]))
            assignment = heartbeat.Assignment(
                topic_partitions=[
                    heartbeat.TopicPartitions(
                        topic_id=each, partitions=self.draw.sample(range(4), self.draw.randrange(5))
                    )
                    for each in ids
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            error_code=error,
            member_id="m-1",
            member_epoch=-1 if request.member_epoch == -1 else max(1, self.generation),
            heartbeat_interval_ms=1_000,
            assignment=assignment,
        )
        self.answer(request, response, version=1)

    def respond_classic(self, request: Any, *, is_good: bool) -> None:
        error = ErrorCode.NONE if is_good else self.draw.choice(CLASSIC_ERRORS)
        match request:
            case JoinGroupRequest():
                if not request.member_id and self.draw.random() < 0.5:
                    error = ErrorCode.MEMBER_ID_REQUIRED
                self.generation += 1
                leads = self.draw.random() < 0.5
                joined = [
                    JoinGroupResponseMember(member_id=name, metadata=encode_subscription(["orders"]))
                    for name in ("c-1", "c-2")
                ]
                answer: Any = JoinGroupResponse(
                    error_code=error,
                    generation_id=self.generation,
                    protocol_name=self.assignor,
                    leader="c-1" if leads else "c-2",
                    member_id="c-1",
                    members=joined if leads else [],
                )
            case SyncGroupRequest():
                partitions = self.draw.sample(range(4), self.draw.randrange(5))
                answer = SyncGroupResponse(error_code=error, assignment=encode_assignment({"orders": partitions}))
            case HeartbeatRequest():
                answer = HeartbeatResponse(error_code=error)
            case LeaveGroupRequest():
                answer = LeaveGroupResponse(error_code=error)
            case DescribeGroupsRequest():
                members = [describe_groups.DescribedGroupMember()] * self.draw.randrange(8)
                answer = DescribeGroupsResponse(groups=[describe_groups.DescribedGroup(members=members)])
            case ConsumerGroupDescribeRequest():
                group = consumer_group_describe.DescribedGroup(error_code=error)
                answer = ConsumerGroupDescribeResponse(groups=[group] if is_good else [])
            case _:
                raise AssertionError(f"nobody answers {type(request).__name__}")
        self.answer(request, answer)

    # -- the walk ---------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        self.take(Subscribed(topics=("orders",)))
        for _ in range(steps):
            choice = self.draw.random()
            if choice < 0.45:
                self.react()
            elif choice < 0.8:
                self.act()
            else:
                self.advance(self.draw.choice([1, 30, 500, 3_000]))
        self.close(timeout_ms=5_000)
        for _ in range(100):
            if self.is_stopped:
                break
            self.act_answer_question()
            self.react(calm=True)
            self.advance(100)
        assert isinstance(self.ended("close"), Complete)
        assert self.is_stopped
        assert self.machine.next_deadline() is None
        for ticket in self.tickets:
            assert isinstance(self.ended(ticket), Complete | Fail), f"{ticket} never ended"
        ends = self.delivered(CommitEnded)
        assert sorted(each.callback for each in ends) == sorted(self.asynchronous), "each asynchronous commit ends once"
        good = [self.asynchronous.index(each.callback) for each in ends if each.error is None]
        assert good == sorted(good), "in order"


@pytest.mark.large
@pytest.mark.parametrize("protocol", ["consumer", "classic", "cooperative"])
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_machine_keeps_its_laws(protocol: str, seed: int) -> None:
    """Whatever is drawn; a failing seed is the whole story."""
    Walk(seed, protocol).run(120)

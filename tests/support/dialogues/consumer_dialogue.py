"""A consumer's machine in conversation with a scripted cluster and a scripted application.

Metadata, FindCoordinator, ListOffsets and OffsetFetch are answered from the fields of the dialogue unless a test takes
them over (`by_hand`); heartbeats, joins, commits and fetches are always the test's.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeVar

from kohort.client.consumer.application_events import (
    CallbackDone,
    CallbackKind,
    CallbackStarted,
    CallbackWanted,
    Chunk,
    CloseAsked,
    Fence,
    Polled,
    Remade,
    Sought,
    Start,
    Subscribed,
    Trouble,
    Watermarks,
)
from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Action, Complete, Deliver, Disconnect, Endpoint, Fail, Lane, Send, Stop, Warn
from kohort.client.core.requests import DeadlineReached, Failure, RequestFailed, ResponseReceived
from kohort.client.options import CONSUMER_OPTIONS, client_settings, consumer_settings
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.records.batch import build_batch
from kohort.wire.messages import consumer_group_heartbeat as heartbeat
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kohort.wire.schema import Message

BROKER = Endpoint("127.0.0.1", 9092)
ORDERS = b"orders".ljust(16, b".")
R = TypeVar("R", bound=Message)


def orders(*partitions: int) -> list[TopicPartition]:
    """Partitions of the topic that these dialogues are about."""
    return [TopicPartition("orders", partition) for partition in partitions]


class ConsumerDialogue:
    """The machine, its clock, what it has sent and delivered, and what the cluster would say."""

    def __init__(self, *, given: Container[str] = (), **options: object) -> None:
        values = CONSUMER_OPTIONS.parse({"group_id": "billing", "auto_offset_reset": "earliest", **options})
        self.settings = consumer_settings(values, given)
        self.machine = ConsumerMachine(client_settings(values), self.settings, member_id="m-1")
        self.now_ms = 1_000_000
        #: Whether the brokers are kohort's.
        self.is_kohort = False
        #: How long a login lasts; 0: without end.
        self.login_ms = 0
        #: topic -> (id, number of partitions); what is missing here does not exist.
        self.topics: dict[str, tuple[bytes, int]] = {"orders": (ORDERS, 4)}
        self.leaders: dict[TopicPartition, int] = {}
        #: partition -> leader epoch, where it is not 3.
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.brokers: dict[int, Endpoint] = {1: BROKER}
        self.committed: dict[TopicPartition, int] = {}
        self.committed_epochs: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.log_ends: dict[TopicPartition, int] = {}
        #: Requests of these classes are left to the test.
        self.by_hand: set[type[Message]] = set()
        #: Topics of which metadata says nothing but that they may not be described.
        self.hidden: set[str] = set()
        #: Requests without an answer, in order.
        self.open: list[Send] = []
        self.actions: list[Action] = []
        self.questions: list[CallbackWanted] = []
        self._fence = 0
        self._starts: dict[int, dict[TopicPartition, Start]] = {}

    # -- the machine ----------------------------------------------------------------------------------------------

    def take(self, event: Any) -> list[Action]:
        """Let the machine take an event, then answer what is answered by itself."""
        actions = self.machine.handle(event, self.now_ms)
        broken: list[Send] = []
        remade: list[Remade] = []
        for action in actions:
            self.actions.append(action)
            if isinstance(action, Send):
                self.open.append(action)
            elif isinstance(action, Deliver) and isinstance(action.item, CallbackWanted):
                self.questions.append(action.item)
            elif isinstance(action, Deliver) and isinstance(action.item, Remade):
                remade.append(action.item)
            elif isinstance(action, Disconnect):
                # What is sent after the order to disconnect goes over the next connection.
                broken += [send for send in self.open if (send.to, send.lane) == (action.to, action.lane)]
        for send in broken:
            self.open.remove(send)
            self.take(RequestFailed(token=send.token, failure=Failure.DISCONNECTED, detail="not needed any more"))
        for each in remade:
            self.on_remade(each)
        self._answer_by_itself()
        return actions

    def on_remade(self, remade: Remade) -> None:
        """The application's side begins anew."""
        self.take(Sought(partition=remade.partition, fence=self.new_fence(), offset=None))

    def advance(self, ms: int) -> None:
        """Time passes; each deadline on the way is reached."""
        until = self.now_ms + ms
        for _ in range(10_000):
            deadline = self.machine.next_deadline()
            if deadline is None or deadline > until:
                break
            self.now_ms = max(self.now_ms + 1, deadline)
            self.take(DeadlineReached())
        else:
            raise AssertionError("the machine spins: its deadlines do not move on")
        self.now_ms = max(self.now_ms, until)

    def settle(self) -> None:
        """Let everything happen that is due now."""
        self.advance(1)

    @property
    def member(self) -> Any:
        return self.machine._member

    @property
    def state(self) -> MemberState:
        return self.member.state

    # -- the cluster ----------------------------------------------------------------------------------------------

    def find(self, kind: type[Message]) -> list[Send]:
        """Open requests of a class."""
        return [send for send in self.open if isinstance(send.request, kind)]

    def sent(self, kind: type[Message]) -> list[Send]:
        """Requests of a class, answered or not."""
        return [each for each in self.actions if isinstance(each, Send) and isinstance(each.request, kind)]

    def expect(self, kind: type[R]) -> R:
        """The one open request of a class."""
        found = self.find(kind)
        assert len(found) == 1, f"{len(found)} open {kind.__name__}: {[type(s.request).__name__ for s in self.open]}"
        request = found[0].request
        assert isinstance(request, kind)
        return request

    def answer(self, request: Message, response: Message, *, version: int = 9) -> None:
        """Answer an open request."""
        send = next(each for each in self.open if each.request is request)
        self.open.remove(send)
        received = ResponseReceived(
            token=send.token, version=version, message=response, is_kohort=self.is_kohort, login_ms=self.login_ms
        )
        self.take(received)

    def fail(self, request: Message, failure: Failure, detail: str = "scripted") -> None:
        """An open request gets no answer."""
        send = next(each for each in self.open if each.request is request)
        self.open.remove(send)
        self.take(RequestFailed(token=send.token, failure=failure, detail=detail))

    def _answer_by_itself(self) -> None:
        for send in list(self.open):
            request = send.request
            if send not in self.open or type(request) in self.by_hand:
                continue
            match request:
                case MetadataRequest():
                    self.answer(request, self.metadata(request))
                case FindCoordinatorRequest():
                    found = Coordinator(key="billing", node_id=1, host=BROKER.host, port=BROKER.port)
                    self.answer(request, FindCoordinatorResponse(coordinators=[found]))
                case ListOffsetsRequest():
                    self.answer(request, self.offsets(request))
                case OffsetFetchRequest():
                    self.answer(request, self.committed_offsets(request))
                case _:
                    pass

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        topics = []
        for name in sorted(self.topics) if request.topics is None else [asked.name for asked in request.topics]:
            assert name is not None
            if name not in self.topics or name in self.hidden:
                missing, hidden = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
                error = hidden if name in self.hidden else missing
                topics.append(MetadataResponseTopic(name=name, error_code=error))
                continue
            topic_id, count = self.topics[name]
            partitions = [
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=self.leaders.get(TopicPartition(name, index), 1),
                    leader_epoch=self.leader_epochs.get(TopicPartition(name, index), 3),
                )
                for index in range(count)
            ]
            topics.append(MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
        brokers = [
            MetadataResponseBroker(node_id=node, host=endpoint.host, port=endpoint.port)
            for node, endpoint in self.brokers.items()
        ]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            found = []
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                table = self.log_starts if each.timestamp == -2 else self.log_ends
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=table.get(partition, 0), timestamp=-1
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    def committed_offsets(self, request: OffsetFetchRequest, error: ErrorCode = ErrorCode.NONE) -> OffsetFetchResponse:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=self.committed.get(TopicPartition(topic.name, index), -1),
                        committed_leader_epoch=self.committed_epochs.get(TopicPartition(topic.name, index), -1),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.groups[0].topics or ()
        ]
        group = OffsetFetchResponseGroup(group_id="billing", topics=[] if error else topics, error_code=error)
        return OffsetFetchResponse(groups=[group])

    # -- membership -----------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.take(Subscribed(topics=topics or ("orders",)))
        self.settle()

    def heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """The open heartbeat."""
        self.settle()
        return self.expect(ConsumerGroupHeartbeatRequest)

    def reply(
        self,
        *,
        epoch: int = 1,
        assigned: Mapping[bytes, Sequence[int]] | Sequence[int] | None = None,
        error: ErrorCode = ErrorCode.NONE,
        message: str | None = None,
        interval_ms: int = 5_000,
        reason: str | None = None,
        number: int = 0,
        should_compute: bool = False,
        said: heartbeat.ClientAssignment | None = None,
        session_ms: int = -1,
        grant: heartbeat.OwnershipGrant | None = None,
        counts_fetches: bool = False,
    ) -> ConsumerGroupHeartbeatRequest:
        """Answer the open heartbeat, of two the one that was sent first; returns the request."""
        self.settle()
        request = self.find(ConsumerGroupHeartbeatRequest)[0].request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        assignment = None
        if assigned is not None:
            by_id = assigned if isinstance(assigned, Mapping) else {ORDERS: assigned}
            assignment = heartbeat.Assignment(
                topic_partitions=[
                    heartbeat.TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                    for topic_id, partitions in by_id.items()
                ]
            )
        response = ConsumerGroupHeartbeatResponse(
            error_code=error,
            error_message=message,
            member_id="m-1",
            member_epoch=epoch,
            heartbeat_interval_ms=interval_ms,
            assignment=assignment,
            rebalance_reason=reason,
            number=number,
            should_compute_assignment=should_compute,
            client_assignment=said,
            session_timeout_ms=session_ms,
            grant=grant,
            counts_fetches=counts_fetches,
        )
        self.answer(request, response, version=1)
        return request

    def acknowledge(
        self,
        kind: CallbackKind,
        *partitions: int,
        consumed: Mapping[int, int] | None = None,
        topic: str = "orders",
    ) -> None:
        """The application answers the oldest question, which has to be this one."""
        question = self.questions.pop(0)
        assert (question.kind, question.partitions) == (kind, tuple(TopicPartition(topic, p) for p in partitions))
        starts = self._starts_for(question)
        done = {TopicPartition(topic, partition): offset for partition, offset in (consumed or {}).items()}
        self.take(CallbackDone(number=question.number, consumed=done, starts=starts))
        self.settle()

    def start_callback(self) -> CallbackWanted:
        question = self.questions[0]
        self.take(CallbackStarted(number=question.number, starts=self._starts_for(question)))
        return question

    def start_with(self, partition: TopicPartition, start: Start) -> None:
        """The application has sought in the callback that is open."""
        self._starts_for(self.questions[0])[partition] = start

    def _starts_for(self, question: CallbackWanted) -> dict[TopicPartition, Start]:
        """Made once for each question, as the application's side holds partitions from the callback's beginning on."""
        if question.kind is not CallbackKind.ASSIGNED:
            return {}
        if question.number not in self._starts:
            self._starts[question.number] = {each: Start(fence=self.new_fence()) for each in question.partitions}
        return self._starts[question.number]

    def stable(self, *partitions: int, epoch: int = 1) -> None:
        """Join and come to rest with these partitions."""
        self.subscribe()
        self.reply(epoch=epoch, assigned=partitions)
        if partitions:
            self.acknowledge(CallbackKind.ASSIGNED, *partitions)
            self.reply(epoch=epoch)
        assert self.state is MemberState.STABLE

    def poll(self, **consumed: int) -> None:
        """The application polls, having returned from what is below the offsets (p0=5: partition 0, offset 5)."""
        self.take(
            Polled(consumed={TopicPartition("orders", int(name[1:])): offset for name, offset in consumed.items()})
        )
        self.settle()

    def close(self, timeout_ms: int = 30_000, goes_for_good: bool | None = None) -> None:
        deadline_ms = self.now_ms + timeout_ms
        self.take(CloseAsked(ticket="close", deadline_ms=deadline_ms, goes_for_good=goes_for_good))
        self.settle()

    def new_fence(self) -> Fence:
        self._fence += 1
        return Fence(self._fence)

    # -- offsets --------------------------------------------------------------------------------------------------

    def commits(self) -> dict[TopicPartition, int]:
        """What the open OffsetCommit says."""
        return read_commit(self.expect(OffsetCommitRequest))

    def accept_commit(self, error: ErrorCode = ErrorCode.NONE) -> OffsetCommitRequest:
        """Answer the open OffsetCommit, all partitions alike."""
        request = self.expect(OffsetCommitRequest)
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        if error is ErrorCode.NONE:
            self.committed.update(read_commit(request))
        self.answer(request, OffsetCommitResponse(topics=topics))
        self.settle()
        return request

    # -- fetching -------------------------------------------------------------------------------------------------

    def fetching(self) -> dict[TopicPartition, int]:
        """What the open fetches ask for: partition -> offset."""
        self.settle()
        return {
            TopicPartition(topic.topic, entry.partition): entry.fetch_offset
            for send in self.find(FetchRequest)
            for topic in send.request.topics  # type: ignore[attr-defined]
            for entry in topic.partitions
        }

    def serve(
        self,
        records: Mapping[int, bytes] | None = None,
        *,
        errors: Mapping[int, ErrorCode] | None = None,
        watermarks: Mapping[int, Watermarks] | None = None,
    ) -> None:
        """Answer the open fetches with these bytes, or codes, per partition of orders; the others get nothing."""
        self.settle()
        requests = [send.request for send in self.find(FetchRequest) if isinstance(send.request, FetchRequest)]
        assert requests, "nothing is being fetched"
        # What does not wait is answered first.
        for request in sorted(requests, key=lambda request: request.max_wait_ms):
            self.serve_one(request, records or {}, errors, watermarks)

    def serve_one(
        self,
        request: FetchRequest,
        records: Mapping[int, bytes],
        errors: Mapping[int, ErrorCode] | None = None,
        watermarks: Mapping[int, Watermarks] | None = None,
    ) -> None:
        """Answer one open fetch, as `serve`."""
        unknown = Watermarks(-1, -1, -1)
        data = [
            PartitionData(
                partition_index=entry.partition,
                error_code=(errors or {}).get(entry.partition, ErrorCode.NONE),
                records=memoryview(records.get(entry.partition, b"")),
                **(watermarks or {}).get(entry.partition, unknown)._asdict(),
            )
            for topic in request.topics
            for entry in topic.partitions
        ]
        response = FetchResponse(responses=[FetchableTopicResponse(topic_id=ORDERS, partitions=data)])
        self.answer(request, response, version=17)

    # -- what came out --------------------------------------------------------------------------------------------

    def delivered(self, kind: type[Any]) -> list[Any]:
        """Everything of a class that was handed to the application's side."""
        return [action.item for action in self.actions if isinstance(action, Deliver) and isinstance(action.item, kind)]

    def chunks(self) -> list[Chunk]:
        return self.delivered(Chunk)

    def troubles(self) -> list[Trouble]:
        return self.delivered(Trouble)

    def warnings(self) -> list[str]:
        return [action.text for action in self.actions if isinstance(action, Warn) and action.is_warning]

    def news(self) -> list[str]:
        """What only those are told who want to know everything."""
        return [action.text for action in self.actions if isinstance(action, Warn) and not action.is_warning]

    def ended(self, ticket: object) -> Complete | Fail | None:
        """How a ticket ended; `None` if it has not."""
        ends = [each for each in self.actions if isinstance(each, Complete | Fail) and each.ticket == ticket]
        assert len(ends) <= 1, f"{ticket} ended twice"
        return ends[0] if ends else None

    @property
    def is_stopped(self) -> bool:
        return any(isinstance(action, Stop) for action in self.actions)

    def lanes(self, kind: type[Message]) -> set[Lane]:
        """The lanes over which requests of a class went."""
        return {each.lane for each in self.actions if isinstance(each, Send) and isinstance(each.request, kind)}


def read_commit(request: OffsetCommitRequest) -> dict[TopicPartition, int]:
    """What an OffsetCommit says."""
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in request.topics
        for each in topic.partitions
    }


def batch(first: int, count: int) -> bytes:
    """One batch of `count` records whose values are their offsets."""
    return build_batch([(None, b"%d" % (first + i), 1_000 + i, ()) for i in range(count)], base_offset=first)

"""The admin client's calls about the records of partitions, which their leaders answer.

Laws: each leader is asked once for all that it leads, all of them at the same time; what has moved is asked for again
where it is now, and what the others said stands.
Source: Kafka's Admin (listOffsets, deleteRecords).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kohort.client.actions import Endpoint
from kohort.client.admin.partial_results import carry_out
from kohort.client.admin.questions import Question, Questions, error_of
from kohort.client.admin.requests import records as shapes
from kohort.client.admin.requests import topics as topic_shapes
from kohort.client.admin.requests.admin_machine import MovedError
from kohort.client.admin.requests.records import OffsetAt
from kohort.client.admin.results.topics import ListedOffset
from kohort.errors import BrokerError, ErrorCode, KohortError, UnknownTopicError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages.delete_records import DeleteRecordsResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
V = TypeVar("V")
_Said = Mapping[TopicPartition, V | KohortError]

#: How long a partition without a leader may take to get one, seconds: that of a new topic has none for a moment.
_LEADER_WITHIN_S: Final = 5.0


class RecordCalls:
    """Where records stand, and records that are to go."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def list_offsets(
        self,
        partitions: Iterable[str | TopicPartition] | Mapping[TopicPartition, OffsetAt],
        at: OffsetAt = "latest",
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """The offsets of partitions at a time or at one of their ends; one request per leader.

        Args:
            partitions: topics (all of their partitions) and partitions; or each partition with its own `at`.
            at: "earliest", "latest", "max-timestamp" (the record with the latest time), "earliest-local",
                "latest-tiered"; a `datetime` with its zone, a `timedelta` for so long ago or milliseconds since 1970:
                the first record that is as young.
            isolation_level: with "read_committed" the latest is where the first open transaction begins.

        Returns:
            By topic and partition.

        Raises:
            UnknownTopicError: a topic or partition is not there.
            BrokerError: LEADER_NOT_AVAILABLE: a partition has no leader, ...
            PartlyDoneError: of several partitions some have no answer; `done` has the others.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 2)
        ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        ...         _ = producer.send("orders", b"one", partition=1, timestamp_ms=1_700_000_000_000).result(10)
        ...     ends = admin.list_offsets(["orders"])
        ...     [(str(each), row.offset) for each, row in ends.items()]
        ...     admin.list_offsets([kohort.TopicPartition("orders", 1)], 1_600_000_000_000)
        [('orders-0', 0), ('orders-1', 1)]
        {TopicPartition(topic='orders', partition=1): ListedOffset(offset=0, timestamp=1700000000000, leader_epoch=0)}
        """
        now_ms = int(time.time() * 1000)
        level = shapes.to_level(isolation_level)
        topics, chosen = shapes.to_places(partitions)
        own = shapes.to_own_times(partitions)
        stamps = {each: shapes.to_timestamp(own.get(each, at), now_ms=now_ms) for each in chosen}
        for_topics = shapes.to_timestamp(at, now_ms=now_ms)
        stamps |= dict.fromkeys(await self._partitions_of(topics), for_topics)

        def question(part: Sequence[TopicPartition], leader: Endpoint) -> Question[ListOffsetsResponse]:
            wanted = {each: stamps[each] for each in part}
            return Question(
                request=topic_shapes.offsets_request(wanted, isolation_level=level),
                expected=ListOffsetsResponse,
                during="listing offsets",
                codes=lambda _: (),
                target=leader,
                min_version=shapes.first_version(wanted.values()),
            )

        return await self._of_leaders(sorted(stamps), question, _listed, during="listing offsets")

    async def delete_records(self, offsets: Mapping[TopicPartition, int | str]) -> dict[TopicPartition, int]:
        """Delete the oldest records of partitions, for good; one request per leader.

        Args:
            offsets: partition -> the offset at which it is to begin; "latest": all that is there.

        Returns:
            Where each partition begins now.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: it does not go as far, or POLICY_VIOLATION: the topic is compacted only.
            UnknownTopicError: a partition is not there.
            PartlyDoneError: of several partitions some were not cut; `done` and `failed` say which.
            UnsupportedFeatureError: the broker deletes no records: kohort's own does not yet.
        """
        cuts = shapes.to_cuts(offsets)

        def question(part: Sequence[TopicPartition], leader: Endpoint) -> Question[DeleteRecordsResponse]:
            return Question(
                request=shapes.delete_request({each: cuts[each] for each in part}, timeout_ms=30_000),
                expected=DeleteRecordsResponse,
                during="deleting records",
                codes=lambda _: (),
                target=leader,
            )

        def read(response: DeleteRecordsResponse) -> _Said[int]:
            return {
                each: _error(row.error_code, f"deleting records before {_offset(cuts[each])} of", each)
                or row.low_watermark
                for topic in response.topics
                for row in topic.partitions
                for each in [TopicPartition(topic.name, row.partition_index)]
            }

        return await self._of_leaders(sorted(cuts), question, read, during="deleting records")

    async def _partitions_of(self, topics: Sequence[str]) -> list[TopicPartition]:
        metadata = await self._questions.metadata(topics) if topics else None
        for topic in [] if metadata is None else metadata.topics:
            topic_shapes.check_topic(topic)
        return [] if metadata is None else list(topic_shapes.leaders_of(metadata))

    async def _of_leaders(
        self,
        partitions: Sequence[TopicPartition],
        question: Callable[[Sequence[TopicPartition], Endpoint], Question[R]],
        read: Callable[[R], _Said[V]],
        *,
        during: str,
    ) -> dict[TopicPartition, V]:
        """Ask the leader of each partition, wherever it is by then."""
        begun = time.monotonic()

        async def ask(part: Sequence[TopicPartition]) -> _Said[V]:
            found, by_leader = await self._leaders(part)
            said: dict[TopicPartition, V | KohortError] = {**found}
            answers = await self._questions.ask_all([question(led, leader) for leader, led in by_leader.items()])
            for answer, led in zip(answers, by_leader.values(), strict=True):
                if isinstance(answer, UnsupportedFeatureError):
                    raise answer
                if isinstance(answer, MovedError):
                    moved = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(answer.why), during=during)
                    said |= dict.fromkeys(led, moved)
                elif isinstance(answer, KohortError):
                    said |= dict.fromkeys(led, answer)
                else:
                    said |= read(answer)
            return said

        def is_passing(why: KohortError) -> bool:
            has_no_leader = isinstance(why, BrokerError) and why.code is ErrorCode.LEADER_NOT_AVAILABLE
            return not has_no_leader or time.monotonic() < begun + _LEADER_WITHIN_S

        outcome = await carry_out(
            partitions, ask, during=during, within_s=self._questions.timeout_s, is_passing=is_passing
        )
        return outcome.settle()

    async def _leaders(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, KohortError], dict[Endpoint, list[TopicPartition]]]:
        """What is wrong with some of them, and the leaders of the others."""
        metadata = await self._questions.metadata(dict.fromkeys(each.topic for each in partitions))
        leaders = topic_shapes.leaders_of(metadata)
        topics = {topic.name: topic for topic in metadata.topics}
        wrong: dict[TopicPartition, KohortError] = {}
        by_leader: dict[Endpoint, list[TopicPartition]] = {}
        for each in partitions:
            topic = topics[each.topic]
            leader = leaders.get(each)
            if leader is not None:
                by_leader.setdefault(leader, []).append(each)
            elif each in leaders:
                text = f"{each} has no leader: none of its replicas that are in sync is there"
                wrong[each] = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, text, during="looking up leaders")
            elif topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                wrong[each] = BrokerError(ErrorCode.of(topic.error_code), during=f"looking up topic {each.topic}")
            elif topic.partitions:
                wrong[each] = UnknownTopicError(each.topic, each.partition, len(topic.partitions))
            else:
                wrong[each] = UnknownTopicError(each.topic)
        return wrong, by_leader


def _listed(response: ListOffsetsResponse) -> _Said[ListedOffset]:
    return {
        each: _error(row.error_code, "listing the offset of", each) or shapes.listed(row)
        for topic in response.topics
        for row in topic.partitions
        for each in [TopicPartition(topic.name, row.partition_index)]
    }


def _error(code: int, doing: str, partition: TopicPartition) -> KohortError | None:
    return error_of(code, None, f"{doing} {partition}", topic=partition.topic)


def _offset(cut: int) -> str:
    return "the end" if cut < 0 else f"offset {cut}"

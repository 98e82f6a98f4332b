"""The admin client's calls about topics, and about the offsets and records of partitions.

Laws: each leader gets one request for all of its partitions, and all leaders are asked at the same time. A partition
whose leader has changed is asked for again at the new leader; the responses for the others are kept.
Source: Kafka's Admin (listOffsets, deleteRecords).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from kohort.client.admin.admin_machine import MovedError, Question
from kohort.client.admin.questions import Calls, Coded, Outcome, carry_out, error_of
from kohort.client.admin.results import topics as results
from kohort.client.admin.results.cluster import TIMEOUT_MS, leaders_of
from kohort.client.admin.results.configs import ConfigResource, describe_request
from kohort.client.admin.results.topics import CreatedTopic, ListedOffset, NewTopic, OffsetAt, TopicDescription
from kohort.client.arguments import INT32_MAX, to_names, to_topic, whole_number
from kohort.client.core.actions import Endpoint
from kohort.client.steps import Pause
from kohort.errors import (
    AdvertisedAddressError,
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    UnknownTopicError,
    UnsupportedFeatureError,
)
from kohort.ids import TopicPartition
from kohort.wire.messages import create_partitions, create_topics, delete_records, delete_topics
from kohort.wire.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
V = TypeVar("V")
_Said = Mapping[TopicPartition, V | KohortError]

#: How long a created topic may take until every partition has a leader, seconds.
_LEADERS_WITHIN_S: Final = 20.0
#: How long a partition without a leader may take to get one, seconds: a new topic's has none for a moment.
_LEADER_WITHIN_S: Final = 5.0
#: Limits of one request: Apache Kafka's controller writes at most 10,000 records for it, and a broker with a slow disk
#: has to finish before the client's timeout, after which the client would ask again for topics that exist by then.
_RECORDS_PER_REQUEST: Final = 5_000
_TOPICS_PER_REQUEST: Final = 200


class TopicCalls(Calls):
    """The calls about topics: list, describe, create, grow, delete."""

    async def list_topics(self) -> list[results.TopicListing]:
        """List all topics by name; Kafka's internal topics have `is_internal`."""
        rows = [results.TopicListing.of(topic) for topic in (await self._questions.metadata(None)).topics]
        return sorted(rows, key=lambda row: row.name)

    async def describe_topics(
        self, names: Sequence[str], *, include_authorized_operations: bool = False
    ) -> list[TopicDescription]:
        """Describe topics, in the order of `names`: their partitions, offsets and topic-level configs.

        Args:
            names: topic names.
            include_authorized_operations: also return the operations that the caller is authorized to perform on them.

        Raises:
            UnknownTopicError: a topic does not exist.
        """
        names = to_names(names, "topics")
        metadata = await self._questions.metadata(names, include_authorized_operations=include_authorized_operations)
        found = {topic.name: topic for topic in metadata.topics}
        for name in names:
            results.check_topic(found[name])
        partitions = [TopicPartition(name, row.partition_index) for name in names for row in found[name].partitions]
        begins = await self._questions.offsets(partitions, results.EARLIEST, metadata)
        ends = await self._questions.offsets(partitions, results.LATEST, metadata)
        configs = await self._configs(names)
        return [TopicDescription.of(found[name], configs.get(name, ()), begins=begins, ends=ends) for name in names]

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        assignments: Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> dict[str, str]:
        """Create a topic, and wait until every partition has a leader.

        Args:
            validate_only: only check whether the topic could be created. The other arguments are those of
                `kohort.NewTopic`.

        Returns:
            The `configs` that the broker accepts but ignores, each with the broker's remark, such as "not acted on
            yet". Empty if there are none, or if the broker does not report them.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_REPLICATION_FACTOR, ...
        """
        topic = NewTopic(name, partitions, replication_factor, assignments, configs)
        return (await self.create_topics([topic], validate_only=validate_only))[0].idle

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create several topics, and wait until every partition has a leader.

        Args:
            topics: `kohort.NewTopic`, plain names (one partition), or the NewTopic of confluent-kafka or kafka-python.
            validate_only: only check whether the topics could be created.

        Returns:
            The created topics, in the order of `topics`.

        Raises:
            PartlyDoneError: some exist already or were refused; `done` and `failed` say which. For a single topic its
                own error is raised, as by `create_topic`.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     made = admin.create_topics(["orders", kohort.NewTopic("bills", 3, configs={"retention.ms": 60_000})])
        ...     [(topic.name, topic.partition_count) for topic in made]
        [('orders', 1), ('bills', 3)]
        """
        wanted = {topic.name: topic for topic in results.to_new_topics(topics)}

        async def ask(names: Sequence[str]) -> dict[str, CreatedTopic | KohortError]:
            chosen = [wanted[name] for name in names]
            request = results.create_request(chosen, validate_only=validate_only)
            response = await self._ask(
                Question(request, create_topics.CreateTopicsResponse, during=_during("creating", names))
            )
            return {
                row.name: error_of(row, f"creating topic {row.name}")
                or CreatedTopic.of(row, validate_only=validate_only)
                for row in response.topics
            }

        outcome = await carry_out(
            wanted,
            ask,
            during="creating topics",
            within_s=self._questions.timeout_s,
            per_request=lambda name: _part(results.weight(wanted[name])),
        )
        if not validate_only:
            counts = {name: row.partition_count or wanted[name].partitions or 1 for name, row in outcome.done.items()}
            await self._await_leaders(outcome, counts)
            chosen = [name for name in outcome.done if wanted[name].configs]
            for name, rows in (await self._configs(chosen) if chosen else {}).items():
                outcome.done[name] = replace(outcome.done[name], idle=results.idle_configs(rows))
        return list(outcome.settle().values())

    async def create_partitions(
        self,
        topics: str | Mapping[str, int],
        total: int | None = None,
        *,
        assignments: Sequence[Sequence[int]] | Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Increase the partition count of a topic to `total`, or of several: `{"orders": 6, "bills": 4}`.

        From then on the same key may go to another partition than before.

        Args:
            assignments: the broker ids of each new partition, the preferred leader first; for several topics by name.
            validate_only: only check whether the change is possible.

        Raises:
            BrokerError: INVALID_PARTITIONS (the topic has as many or more), INVALID_REPLICA_ASSIGNMENT, ...
            UnknownTopicError: the topic does not exist.
            PartlyDoneError: of several topics some were not changed; `done` and `failed` say which.
        """
        totals, brokers = _growth(topics, total, assignments)

        async def ask(names: Sequence[str]) -> dict[str, int | KohortError]:
            request = results.grow_request({name: totals[name] for name in names}, brokers, validate_only=validate_only)
            during = _during("adding partitions to", names)
            response = await self._ask(Question(request, create_partitions.CreatePartitionsResponse, during=during))
            return {
                row.name: error_of(row, f"adding partitions to topic {row.name}", topic=row.name) or totals[row.name]
                for row in response.results
            }

        outcome = await carry_out(
            totals,
            ask,
            during="adding partitions",
            within_s=self._questions.timeout_s,
            per_request=lambda name: _part(totals[name]),
        )
        if not validate_only:
            await self._await_leaders(outcome, outcome.done)
        outcome.settle()

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records.

        Raises:
            UnknownTopicError: the topic does not exist.
            PartlyDoneError: of several topics some were not deleted; `done` and `failed` say which.
        """

        async def ask(names: Sequence[str]) -> dict[str, KohortError | None]:
            states = [delete_topics.DeleteTopicState(name=name) for name in names]
            request = delete_topics.DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=TIMEOUT_MS)
            response = await self._ask(
                Question(request, delete_topics.DeleteTopicsResponse, during=_during("deleting", names))
            )
            return {
                row.name or "": error_of(row, f"deleting topic {row.name}", topic=row.name)
                for row in response.responses
            }

        wanted = to_names(names, "topics")
        await self._questions.do_all(wanted, ask, during="deleting topics", per_request=lambda _: _part(1))

    async def _configs(self, names: Sequence[str]) -> dict[str, list[DescribeConfigsResourceResult]]:
        """Look up the configs of topics, by topic name."""
        response = await self._ask(
            Question(
                describe_request(ConfigResource("topic", name) for name in names),
                DescribeConfigsResponse,
                during="describing topic configs",
                codes=lambda response: [result.error_code for result in response.results],
            )
        )
        return {result.resource_name: result.configs for result in response.results}

    async def _await_leaders(self, outcome: Outcome[str, Any], counts: Mapping[str, int]) -> None:
        """Wait until new partitions have leaders; after a failure, refused topics are reported together with it."""
        try:
            await self._wait_for_leaders(counts)
        except KohortError as why:
            if outcome.failed:
                outcome.failed.update(dict.fromkeys(outcome.done, why))
                outcome.done = {}
                outcome.settle()
            raise

    async def _wait_for_leaders(self, counts: Mapping[str, int]) -> None:
        deadline = time.monotonic() + _LEADERS_WITHIN_S
        left = dict(counts)
        while left:
            metadata = await self._questions.metadata(left)
            there = {topic.name or "": [row.partition_index for row in topic.partitions] for topic in metadata.topics}
            wanted = [TopicPartition(name, number) for name in left for number in there.get(name, ())]
            try:
                # A broker may learn that it leads later than the others do: if it returns an end offset, it knows.
                ends = await self._questions.offsets(wanted, results.LATEST, metadata)
            except AdvertisedAddressError as why:
                made = f"topic {next(iter(left))} was made, but "
                raise AdvertisedAddressError(why.answered, why.attempts, made) from None
            told = Counter(partition.topic for partition in ends)
            left = {name: count for name, count in left.items() if not count <= len(there.get(name, ())) == told[name]}
            if left and time.monotonic() > deadline:
                raise KohortTimeoutError(f"topic {next(iter(left))} exists, but not every partition has a leader yet")
            if left:
                await Pause(0.02)


def _part(records: int) -> float:
    """Return the share of one request that a topic uses up, by the records that the controller writes for it."""
    return max(records / _RECORDS_PER_REQUEST, 1 / _TOPICS_PER_REQUEST)


def _during(doing: str, names: Sequence[str]) -> str:
    return f"{doing} topic {names[0]}" if len(names) == 1 else f"{doing} {len(names)} topics"


def _growth(
    topics: str | Mapping[str, int], total: int | None, assignments: object
) -> tuple[dict[str, int], dict[str, tuple[tuple[int, ...], ...]]]:
    """Check the arguments of `create_partitions`; return total counts and brokers of new partitions, by topic."""
    if isinstance(topics, str):
        if total is None:
            raise TypeError("total is missing: how many partitions the topic shall have")
        totals: Mapping[str, object] = {topics: total}
        brokers: Mapping[str, object] = {} if assignments is None else {topics: assignments}
    elif isinstance(topics, Mapping) and total is None and isinstance(assignments, Mapping | None):
        totals, brokers = topics, assignments or {}
    else:
        raise TypeError("a topic and a total are expected, or a mapping of topics to totals and of assignments")
    if brokers.keys() - totals.keys():
        raise ConfigError(f"assignments has {min(brokers.keys() - totals.keys())}, which is not to be grown")
    expected = "the number of partitions it shall have, 1 or more,"
    return (
        {
            to_topic(name, "{'orders': 6}"): whole_number(count, f"total of {name}", expected, INT32_MAX, minimum=1)
            for name, count in totals.items()
        },
        {name: results.to_assignments(rows) for name, rows in brokers.items()},
    )


class RecordCalls(Calls):
    """The calls that list offsets and delete records."""

    async def list_offsets(
        self,
        partitions: Iterable[str | TopicPartition] | Mapping[TopicPartition, OffsetAt],
        at: OffsetAt = "latest",
        *,
        isolation_level: str = "read_uncommitted",
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up offsets of partitions: the earliest, the latest, or that of a time; one request per leader.

        Args:
            partitions: topics (all of their partitions) and partitions; or a mapping of partitions to their own `at`.
            at: "earliest", "latest", "max-timestamp" (the record with the highest timestamp), "earliest-local",
                "latest-tiered"; or a time: the first record with that timestamp or a later one. A time is a `datetime`
                with a time zone, a `timedelta` before now, or milliseconds since 1970.
            isolation_level: with "read_committed", "latest" is the last stable offset.

        Returns:
            The offsets, sorted by topic and partition.

        Raises:
            UnknownTopicError: a topic or partition does not exist.
            BrokerError: LEADER_NOT_AVAILABLE: a partition has no leader, ...
            PartlyDoneError: some of several partitions have failed; `done` has the others.

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
        level = results.to_level(isolation_level)
        topics, chosen = results.to_places(partitions)
        own = results.to_own_times(partitions)
        stamps = {each: results.to_timestamp(own.get(each, at), now_ms=now_ms) for each in chosen}
        for_topics = results.to_timestamp(at, now_ms=now_ms)
        stamps |= dict.fromkeys(await self._partitions_of(topics), for_topics)

        def question(part: Sequence[TopicPartition], leader: Endpoint) -> Question[ListOffsetsResponse]:
            wanted = {each: stamps[each] for each in part}
            return Question(
                results.offsets_request(wanted, isolation_level=level),
                ListOffsetsResponse,
                during="listing offsets",
                target=leader,
                min_version=results.first_version(wanted.values()),
            )

        return await self._of_leaders(sorted(stamps), question, _listed, during="listing offsets")

    async def delete_records(self, offsets: Mapping[TopicPartition, int | str]) -> dict[TopicPartition, int]:
        """Delete the records of partitions below an offset, permanently; one request per leader.

        Args:
            offsets: by partition, the new log start offset; "latest" deletes all records.

        Returns:
            The log start offset of each partition after the deletion.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE: the offset is beyond the end; POLICY_VIOLATION: the topic is compact only.
            UnknownTopicError: a partition does not exist.
            PartlyDoneError: of several partitions some have failed; `done` and `failed` say which.
            UnsupportedFeatureError: the broker does not support DeleteRecords.
        """
        cuts = results.to_cuts(offsets)

        def question(
            part: Sequence[TopicPartition], leader: Endpoint
        ) -> Question[delete_records.DeleteRecordsResponse]:
            return Question(
                results.delete_request({each: cuts[each] for each in part}),
                delete_records.DeleteRecordsResponse,
                during="deleting records",
                target=leader,
            )

        def read(response: delete_records.DeleteRecordsResponse) -> _Said[int]:
            return {
                each: _error(row, f"deleting records before {_offset(cuts[each])} of", each) or row.low_watermark
                for topic in response.topics
                for row in topic.partitions
                for each in [TopicPartition(topic.name, row.partition_index)]
            }

        return await self._of_leaders(sorted(cuts), question, read, during="deleting records")

    async def _partitions_of(self, topics: Sequence[str]) -> list[TopicPartition]:
        metadata = await self._questions.metadata(topics) if topics else None
        for topic in [] if metadata is None else metadata.topics:
            results.check_topic(topic)
        return [] if metadata is None else list(leaders_of(metadata))

    async def _of_leaders(
        self,
        partitions: Sequence[TopicPartition],
        question: Callable[[Sequence[TopicPartition], Endpoint], Question[R]],
        read: Callable[[R], _Said[V]],
        *,
        during: str,
    ) -> dict[TopicPartition, V]:
        """Ask the leader of each partition, and a new leader where it has changed."""
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

        return await self._questions.do_all(partitions, ask, during=during, is_passing=is_passing)

    async def _leaders(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, KohortError], dict[Endpoint, list[TopicPartition]]]:
        """Look up the leaders of partitions; return an error for each partition without one."""
        metadata = await self._questions.metadata(dict.fromkeys(each.topic for each in partitions))
        leaders = leaders_of(metadata)
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
        each: _error(row, "listing the offset of", each) or ListedOffset.of(row)
        for topic in response.topics
        for row in topic.partitions
        for each in [TopicPartition(topic.name, row.partition_index)]
    }


def _error(said: Coded, doing: str, partition: TopicPartition) -> KohortError | None:
    return error_of(said, f"{doing} {partition}", topic=partition.topic)


def _offset(cut: int) -> str:
    return "the end" if cut < 0 else f"offset {cut}"

"""The admin client's calls about topics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kohort.client.admin.newtopic import NewTopic, to_assignments, to_new_topics
from kohort.client.admin.partial_results import Outcome, carry_out
from kohort.client.admin.questions import Questions, error_of
from kohort.client.admin.requests import topics as topic_shapes
from kohort.client.admin.results.topics import CreatedTopic, TopicDescription, TopicListing
from kohort.client.arguments import INT32_MAX, to_names, to_topic, whole_number
from kohort.client.steps import Pause
from kohort.errors import AdvertisedAddressError, ConfigError, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.create_partitions import CreatePartitionsResponse
from kohort.wire.messages.create_topics import CreateTopicsResponse
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kohort.wire.messages.describe_configs import DescribeConfigsResponse

#: How long a created topic may take until every partition has a leader, seconds.
_LEADERS_WITHIN_S: Final = 20.0
#: How long a broker may take for one request, milliseconds.
_TIMEOUT_MS: Final = 30_000
#: What one request may ask for: Apache Kafka takes 10,000 records of its controller at most, and a broker whose disk is
#: slow has to be done with it before the client takes it for lost, and asks again for what is there by then.
_RECORDS_PER_REQUEST: Final = 5_000
_TOPICS_PER_REQUEST: Final = 200


class TopicCalls:
    """Topics: list, describe, create, grow, delete."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def list_topics(self) -> list[TopicListing]:
        """Every topic, by name; the broker's own ones have `is_internal`."""
        rows = [topic_shapes.listing(topic) for topic in (await self._questions.metadata(None)).topics]
        return sorted(rows, key=lambda row: row.name)

    async def describe_topics(
        self, names: Sequence[str], *, include_authorized_operations: bool = False
    ) -> list[TopicDescription]:
        """Partitions, offsets and own configs of topics, in the order asked.

        Args:
            include_authorized_operations: also what the caller may do with them.

        Raises:
            UnknownTopicError: one of them does not exist.
        """
        names = to_names(names, "topics")
        metadata = await self._questions.metadata(names, include_authorized_operations=include_authorized_operations)
        found = {topic.name: topic for topic in metadata.topics}
        for name in names:
            topic_shapes.check_topic(found[name])
        partitions = [TopicPartition(name, row.partition_index) for name in names for row in found[name].partitions]
        begins = await self._questions.offsets(partitions, topic_shapes.EARLIEST, metadata)
        ends = await self._questions.offsets(partitions, topic_shapes.LATEST, metadata)
        described = await self._describe_topic_configs(names)
        configs, idle = topic_shapes.own_configs(described), topic_shapes.idle_configs(described)
        windows = topic_shapes.loss_windows(described)
        return [
            topic_shapes.describe(
                found[name],
                begins=begins,
                ends=ends,
                configs=configs.get(name, {}),
                idle=idle.get(name, {}),
                window=windows.get(name),
            )
            for name in names
        ]

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
        """Create a topic and return when every partition has its leader and can be used.

        Args:
            partitions: how many; `None`: one, or as many as `assignments` has; -1: the cluster's `num.partitions`.
            replication_factor: copies of each; `None`: the cluster's default.
            assignments: the brokers of each partition, the preferred leader first.
            configs: its own configs.
            validate_only: only say whether it could be made.

        Returns:
            Those of `configs` that the broker takes but does not act on, each with the broker's words for it, such as
            "not acted on yet"; empty if there is none, and from brokers that say nothing of the kind.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, INVALID_REPLICATION_FACTOR, ...
        """
        topic = NewTopic(name, partitions, replication_factor, assignments, configs)
        return (await self.create_topics([topic], validate_only=validate_only))[0].idle

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create several topics, and return when every partition of them has its leader.

        Args:
            topics: `kohort.NewTopic`, names alone (one partition), or what confluent-kafka and kafka-python call so.
            validate_only: only say whether they could be made.

        Returns:
            What was made, in the order asked.

        Raises:
            PartlyDoneError: some are there already or cannot be; `done` and `failed` say which. Of a single topic it
                is the error itself, as of `create_topic`.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     made = admin.create_topics(["orders", kohort.NewTopic("bills", 3, configs={"retention.ms": 60_000})])
        ...     [(topic.name, topic.partition_count) for topic in made]
        [('orders', 1), ('bills', 3)]
        """
        wanted = {topic.name: topic for topic in to_new_topics(topics)}

        async def ask(names: Sequence[str]) -> dict[str, CreatedTopic | KohortError]:
            chosen = [wanted[name] for name in names]
            response = await self._questions.ask(
                topic_shapes.create_request(chosen, timeout_ms=_TIMEOUT_MS, validate_only=validate_only),
                CreateTopicsResponse,
                during=_during("creating", names),
                codes=lambda _: (),
            )
            return {
                row.name: error_of(row.error_code, row.error_message, f"creating topic {row.name}")
                or topic_shapes.created(row, validate_only=validate_only)
                for row in response.topics
            }

        outcome = await carry_out(
            wanted,
            ask,
            during="creating topics",
            within_s=self._questions.timeout_s,
            per_request=lambda name: _part(topic_shapes.weight(wanted[name])),
        )
        if not validate_only:
            counts = {name: row.partition_count or wanted[name].partitions or 1 for name, row in outcome.done.items()}
            await self._await_leaders(outcome, counts)
            idle = await self._idle([name for name in outcome.done if wanted[name].configs])
            outcome.done = {name: replace(row, idle=idle.get(name, {})) for name, row in outcome.done.items()}
        return list(outcome.settle().values())

    async def create_partitions(
        self,
        topics: str | Mapping[str, int],
        total: int | None = None,
        *,
        assignments: Sequence[Sequence[int]] | Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to `total` partitions, or several: `{"orders": 6, "bills": 4}`.

        Keys go to other partitions from then on than before.

        Args:
            assignments: the brokers of each new partition, the preferred leader first; for several topics by name.
            validate_only: only say whether it could be done.

        Raises:
            BrokerError: INVALID_PARTITIONS (it has as many already), INVALID_REPLICA_ASSIGNMENT, ...
            UnknownTopicError: there is no such topic.
            PartlyDoneError: of several topics some were not grown; `done` and `failed` say which.
        """
        totals, brokers = _growth(topics, total, assignments)

        async def ask(names: Sequence[str]) -> dict[str, int | KohortError]:
            request = topic_shapes.grow_request(
                {name: totals[name] for name in names}, brokers, timeout_ms=_TIMEOUT_MS, validate_only=validate_only
            )
            during = _during("adding partitions to", names)
            response = await self._questions.ask(request, CreatePartitionsResponse, during=during, codes=lambda _: ())
            return {
                row.name: error_of(
                    row.error_code, row.error_message, f"adding partitions to topic {row.name}", topic=row.name
                )
                or totals[row.name]
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
            UnknownTopicError: there is no such topic.
            PartlyDoneError: of several topics some were not deleted; `done` and `failed` say which.
        """

        async def ask(names: Sequence[str]) -> dict[str, KohortError | None]:
            states = [DeleteTopicState(name=name) for name in names]
            response = await self._questions.ask(
                DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=_TIMEOUT_MS),
                DeleteTopicsResponse,
                during=_during("deleting", names),
                codes=lambda _: (),
            )
            return {
                row.name or "": error_of(
                    row.error_code, row.error_message, f"deleting topic {row.name}", topic=row.name
                )
                for row in response.responses
            }

        (
            await carry_out(
                to_names(names, "topics"),
                ask,
                during="deleting topics",
                within_s=self._questions.timeout_s,
                per_request=lambda _: _part(1),
            )
        ).settle()

    async def _idle(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        return topic_shapes.idle_configs(await self._describe_topic_configs(names)) if names else {}

    async def _describe_topic_configs(self, names: Sequence[str]) -> DescribeConfigsResponse:
        return await self._questions.ask(
            topic_shapes.configs_request(names),
            DescribeConfigsResponse,
            during="describing topic configs",
            codes=lambda response: [result.error_code for result in response.results],
        )

    async def _await_leaders(self, outcome: Outcome[str, Any], counts: Mapping[str, int]) -> None:
        """Wait for the leaders of what was made; what was refused beside it is not forgotten if they do not come."""
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
                # A broker may hear that it leads a little after everybody else: one that tells an end has heard it.
                ends = await self._questions.offsets(wanted, topic_shapes.LATEST, metadata)
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
    """Which part of a request a topic takes for which a controller writes so many records."""
    return max(records / _RECORDS_PER_REQUEST, 1 / _TOPICS_PER_REQUEST)


def _during(doing: str, names: Sequence[str]) -> str:
    return f"{doing} topic {names[0]}" if len(names) == 1 else f"{doing} {len(names)} topics"


def _growth(
    topics: str | Mapping[str, int], total: int | None, assignments: object
) -> tuple[dict[str, int], dict[str, tuple[tuple[int, ...], ...]]]:
    """Topic -> how many partitions it shall have; topic -> the brokers of each new one."""
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
        {name: to_assignments(rows) for name, rows in brokers.items()},
    )

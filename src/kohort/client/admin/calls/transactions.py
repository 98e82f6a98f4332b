"""The admin client's calls about transactions and producers.

Source: Kafka's Admin (describeProducers, listTransactions, describeTransactions, abortTransaction, fenceProducers) and
kafka-transactions (`find-hanging`); KIP-664.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from kohort.base.values import from_row
from kohort.client import arguments
from kohort.client.admin.admin_machine import MovedError, Question
from kohort.client.admin.calls.groups import read_history
from kohort.client.admin.questions import Calls, check, error_of, gone
from kohort.client.admin.results import cluster as cluster_results
from kohort.client.admin.results import transactions as results
from kohort.client.admin.results.groups import GroupHistory
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.wire.messages import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    write_txn_markers,
)
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse
from kohort.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
V = TypeVar("V")
_Said = dict[TopicPartition, V | KohortError]

#: `key_type` of FindCoordinator for transactional ids.
_TRANSACTION: Final = 1
#: The longest transaction, milliseconds: the default of `transaction.max.timeout.ms`. Its coordinator then aborts it.
_LONGEST_MS: Final = 15 * 60 * 1000


class TransactionCalls(Calls):
    """The calls about transactions and producers."""

    async def list_transactions(
        self,
        states: Iterable[str] | None = None,
        *,
        producer_ids: Iterable[int] | None = None,
        running_longer_than_ms: int | None = None,
        pattern: str | None = None,
    ) -> list[results.TransactionListing]:
        """List the transactions of the cluster, sorted by transactional id.

        Args:
            states: only in these states: "Ongoing", "PrepareAbort", "CompleteCommit", ...
            producer_ids: only of these producers.
            running_longer_than_ms: only transactions that have been open for longer.
            pattern: only transactional ids that match this regular expression as a whole (RE2).

        Raises:
            ConfigError: a broker does not know one of the states.
            UnsupportedFeatureError: the broker has no transactions, or not this filter.
        """
        if not isinstance(pattern, str | None):
            raise TypeError(f"pattern must be text, not {type(pattern).__name__}: 'orders-.*'")
        request = ListTransactionsRequest(
            state_filters=[] if states is None else arguments.to_names(states, "states"),
            producer_id_filters=[] if producer_ids is None else _producer_ids(producer_ids),
            duration_filter=-1
            if running_longer_than_ms is None
            else arguments.whole_number(
                running_longer_than_ms, "running_longer_than_ms", "milliseconds, 0 or more,", arguments.INT64_MAX
            ),
            transactional_id_pattern=pattern,
        )
        lowest = 2 if pattern is not None else 1 if running_longer_than_ms is not None else None
        question = Question(request, ListTransactionsResponse, during="listing transactions", min_version=lowest)
        found: dict[str, results.TransactionListing] = {}
        for response in await self._questions.ask_brokers(question):
            if response.unknown_state_filters:
                raise ConfigError(
                    f"states cannot be {response.unknown_state_filters}: Ongoing, CompleteCommit, ... are"
                )
            for row in response.transaction_states:
                found[row.transactional_id] = from_row(results.TransactionListing, row, state=row.transaction_state)
        return [found[name] for name in sorted(found)]

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[results.TransactionDescription]:
        """Describe the transactions of these ids, in their order; each coordinator gets one request.

        Raises:
            PartlyDoneError: some ids do not exist (TRANSACTIONAL_ID_NOT_FOUND) or have failed; for a single id its own
                BrokerError is raised.
            UnsupportedFeatureError: the broker has no transactions.
        """
        during = "describing transactions"

        async def ask(names: Sequence[str]) -> dict[str, results.TransactionDescription | KohortError]:
            found, lost = await self._transaction_coordinators(names, during)
            said: dict[str, results.TransactionDescription | KohortError] = {**lost}
            for address, mine in found.items():
                request = describe_transactions.DescribeTransactionsRequest(transactional_ids=mine)
                expected = describe_transactions.DescribeTransactionsResponse
                question = Question(request, expected, target=address, during=during)
                said |= await self._questions.ask_about(mine, question, read)
            return said

        def read(
            response: describe_transactions.DescribeTransactionsResponse,
        ) -> dict[str, results.TransactionDescription | KohortError]:
            return {
                row.transactional_id: error_of(row, during, text=_text_of(row.error_code, row.transactional_id))
                or results.TransactionDescription.of(row)
                for row in response.transaction_states
            }

        wanted = arguments.to_names(transactional_ids, "transactional_ids")
        return list((await self._questions.do_all(wanted, ask, during=during)).values())

    async def transaction_history(self, transactional_id: str, *, whole: bool = False) -> GroupHistory:
        """Read the history of a transactional id: each step of its transactions, each producer, each refusal.

        Steps that repeat are one event with the number of times. The id stands in `group_id`, and `member_id` has the
        producer ids.

        Args:
            transactional_id: the id.
            whole: as for `group_history`.

        Raises:
            UnsupportedFeatureError: the broker is not kohort's; Apache Kafka keeps no history.
        """
        during = f"reading the history of transactional id {transactional_id}"
        (name,) = arguments.to_names([transactional_id], "transactional_id")
        found, lost = await self._transaction_coordinators([name], during)
        for error in lost.values():
            raise error
        (address,) = found

        async def ask(request: GroupHistoryRequest) -> GroupHistoryResponse:
            request.group_id, request.transactional_id = "", name
            question = Question(request, GroupHistoryResponse, target=address, during=during, min_version=2)
            page = await self._ask(question)
            check(page, during)
            return page

        try:
            return await read_history(ask, name, after=None, whole=whole)
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            text = f"only kohort's broker keeps a history of transactions: {why.message}"
            raise UnsupportedFeatureError(why.code, text, during=during) from why

    async def fence_producers(self, transactional_ids: Iterable[str]) -> list[results.FencedProducer]:
        """Fence the producers of transactional ids: they can write no more, and their open transactions are aborted.

        Raises:
            PartlyDoneError: some were not fenced; `done` and `failed` say which. For a single id: its BrokerError.
            UnsupportedFeatureError: the broker has no transactions.
        """
        during = "fencing producers"

        async def ask(names: Sequence[str]) -> dict[str, results.FencedProducer | KohortError]:
            found, lost = await self._transaction_coordinators(names, during)
            said: dict[str, results.FencedProducer | KohortError] = {**lost}
            for address, mine in found.items():
                for name in mine:
                    try:
                        said[name] = await self._fence(name, address)
                    except MovedError as moved:
                        said[name] = gone(moved, during)
                    except BrokerError as why:
                        said[name] = why
            return said

        wanted = arguments.to_names(transactional_ids, "transactional_ids")
        return list((await self._questions.do_all(wanted, ask, during=during)).values())

    async def _fence(self, name: str, address: Endpoint) -> results.FencedProducer:
        # With its first transaction the next owner of the id sets its own timeout.
        response = await self._ask(
            Question(
                init_producer_id.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1),
                init_producer_id.InitProducerIdResponse,
                target=address,
                during=f"fencing producers of {name}",
                codes=lambda _: (),
            )
        )
        check(response, f"fencing producers of {name}")
        return from_row(results.FencedProducer, response, transactional_id=name)

    async def describe_producers(self, partitions: Iterable[TopicPartition]) -> list[results.ProducerDescription]:
        """Describe the active producers of partitions, sorted by partition and producer id.

        Raises:
            UnknownTopicError: a partition does not exist.
            PartlyDoneError: some partitions have failed; for a single one its own BrokerError is raised.
            UnsupportedFeatureError: the broker does not support DescribeProducers.
        """
        during = "describing producers"

        def read(
            response: describe_producers.DescribeProducersResponse,
        ) -> _Said[tuple[results.ProducerDescription, ...]]:
            return {
                (each := TopicPartition(topic.name, row.partition_index)): error_of(row, during)
                or results.producers(each, row)
                for topic in response.topics
                for row in topic.partitions
            }

        async def ask(chosen: Sequence[TopicPartition]) -> _Said[tuple[results.ProducerDescription, ...]]:
            expected = describe_producers.DescribeProducersResponse
            return await self._ask_leaders(chosen, results.producers_request, expected, read, during=during)

        done = await self._questions.do_all(sorted(set(arguments.to_partitions(partitions))), ask, during=during)
        return [row for _, rows in sorted(done.items()) for row in rows]

    async def find_hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int = _LONGEST_MS
    ) -> list[results.ProducerDescription]:
        """Find hanging transactions: open in a partition, but unknown to their coordinator. See `abort_transaction`.

        Args:
            older_than_ms: only of producers that have written nothing for so long. With less than the broker's
                `transaction.max.timeout.ms`, by default 15 minutes, a transaction that has just begun may be found.

        Raises:
            UnknownTopicError, PartlyDoneError, UnsupportedFeatureError: as for `describe_producers`.
        """
        arguments.whole_number(older_than_ms, "older_than_ms", "milliseconds, 0 or more,", arguments.INT64_MAX)
        latest = int(time.time() * 1000) - older_than_ms
        found = [
            row
            for row in await self.describe_producers(partitions)
            if row.transaction_start_offset is not None and row.last_timestamp <= latest
        ]
        if not found:
            return []
        names = {
            row.producer_id: row.transactional_id
            for row in await self.list_transactions(producer_ids={row.producer_id for row in found})
        }
        known = {row.transactional_id: row for row in await self.describe_transactions(sorted(set(names.values())))}
        return [row for row in found if not _is_open(row, known.get(names.get(row.producer_id, "")))]

    async def abort_transaction(self, partition: TopicPartition, start_offset: int) -> results.ProducerDescription:
        """Abort a hanging transaction in one partition, without its coordinator.

        A transaction that its coordinator still knows is aborted by `fence_producers`, in all of its partitions.

        Args:
            partition: where the transaction is open.
            start_offset: offset of its first record there: `transaction_start_offset` of `describe_producers`.

        Returns:
            The producer of the transaction.

        Raises:
            ConfigError: no open transaction begins at that offset.
            UnknownTopicError: the partition does not exist.
            BrokerError: INVALID_PRODUCER_EPOCH: the transaction has ended meanwhile; CLUSTER_AUTHORIZATION_FAILED, ...
            UnsupportedFeatureError: the broker has no transactions.
        """
        partition, begin = arguments.to_partition(partition), arguments.to_offset(start_offset)
        open_ones = {
            row.transaction_start_offset: row
            for row in await self.describe_producers([partition])
            if row.transaction_start_offset is not None
        }
        if begin not in open_ones:
            there = f"they begin at {', '.join(map(str, sorted(open_ones)))}" if open_ones else "none is open there"
            raise ConfigError(f"no open transaction of {partition} begins at offset {begin}: {there}")
        during = f"aborting a transaction of {partition}"

        def read(response: write_txn_markers.WriteTxnMarkersResponse) -> _Said[None]:
            return {
                TopicPartition(topic.name, row.partition_index): error_of(row, during)
                for each in response.markers
                for topic in each.topics
                for row in topic.partitions
            }

        async def ask(chosen: Sequence[TopicPartition]) -> _Said[None]:
            request, expected = results.abort_request(open_ones[begin]), write_txn_markers.WriteTxnMarkersResponse
            return await self._ask_leaders(chosen, lambda _: request, expected, read, during=during)

        await self._questions.do_all([partition], ask, during=during)
        return open_ones[begin]

    async def _ask_leaders(
        self,
        chosen: Sequence[TopicPartition],
        build: Callable[[Sequence[TopicPartition]], Message],
        expected: type[R],
        read: Callable[[R], _Said[V]],
        *,
        during: str,
    ) -> _Said[V]:
        """Ask each leader for its own partitions; a partition without a leader gets an error."""
        said: _Said[V] = {}
        known = await self._questions.metadata_of(chosen)
        for leader, mine in cluster_results.by_leader(chosen, known).items():
            if leader is None:
                no_leader = BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader now", during=during)
                said |= dict.fromkeys(mine, no_leader)
            else:
                question = Question(build(mine), expected, target=leader, during=during)
                said |= await self._questions.ask_about(mine, question, read)
        return said

    async def _transaction_coordinators(
        self, names: Sequence[str], during: str
    ) -> tuple[dict[Endpoint, list[str]], dict[str, KohortError]]:
        """Find the transactional ids of each coordinator, and the errors of ids without one."""
        response = await self._ask(
            Question(
                find_coordinator.FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=list(names)),
                find_coordinator.FindCoordinatorResponse,
                during=during,
                codes=lambda _: (),
                # A broker that has DescribeTransactions also accepts several ids here.
                min_version=4,
            )
        )
        found: dict[Endpoint, list[str]] = {}
        said: dict[str, KohortError] = {}
        for row in response.coordinators:
            error = error_of(row, during)
            if error is None:
                found.setdefault(Endpoint(row.host, row.port), []).append(row.key)
            else:
                said[row.key] = error
        if any(row.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED for row in response.coordinators):
            # A broker without transactions cannot report that here; it does for an API that it lacks.
            await self._ask(
                Question(
                    describe_transactions.DescribeTransactionsRequest(),
                    describe_transactions.DescribeTransactionsResponse,
                    during=during,
                )
            )
        return found, said


def _text_of(code: int, name: str) -> str:
    is_missing = code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    return f"no coordinator knows {name}; its id may have expired" if is_missing else name


def _is_open(producer: results.ProducerDescription, known: results.TransactionDescription | None) -> bool:
    """Return whether the coordinator knows the transaction that a producer has open in a partition."""
    return (
        known is not None
        and known.producer_id == producer.producer_id
        and TopicPartition(producer.topic, producer.partition) in known.partitions
    )


def _producer_ids(given: object) -> list[int]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"producer_ids cannot be {given!r}: a list of numbers is expected, like [4000]")
    return [arguments.whole_number(each, "producer_ids", "the id of a producer", arguments.INT64_MAX) for each in given]

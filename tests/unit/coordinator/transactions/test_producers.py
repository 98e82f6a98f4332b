"""Producers of a transactional id: epochs, fences, repeated requests, the end of the epochs, and bad input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.coordinator.transactions.commands import (
    DescribeTransaction,
    DescribeTransactionReply,
    ListTransactions,
    ListTransactionsReply,
)
from kohort.coordinator.transactions.records import build_log_batch
from kohort.coordinator.transactions.states import LAST_EPOCH, TransactionState
from kohort.errors import ErrorCode
from support.dialogues.transaction_dialogue import T0, T1, TransactionDialogue

FENCED, CONCURRENT = ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
WRONG_STATE, UNKNOWN = ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING


def at_last_epoch(tx: TransactionDialogue, *, version: int = 2) -> tuple[int, int]:
    """Begin a transaction with the last epoch of the producer id."""
    producer_id, _ = tx.init().producer()
    stored = replace(tx.stored(), producer_epoch=LAST_EPOCH)
    tx.shard.apply(stored)
    batch = build_log_batch([stored], now_ms=tx.now_ms)
    assert batch is not None
    tx.log.append(batch)
    tx.restart()
    tx.add((producer_id, LAST_EPOCH), version=version)
    return producer_id, LAST_EPOCH


def test_a_second_producer_fences_the_first(tx: TransactionDialogue) -> None:
    first = tx.init().producer()
    second = tx.init().producer()
    assert (first[1], second) == (0, (first[0], 1))
    assert tx.add(first).refused() is FENCED
    assert tx.end(first).refused() is FENCED
    assert tx.init(producer_id=first[0], producer_epoch=0).refused() is FENCED
    older = tx.init(producer_id=first[0], producer_epoch=0, is_fence_named=False)
    assert older.refused() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert tx.add((second[0] + 1, 0)).refused() is UNKNOWN
    assert tx.add(second).errors() == (ErrorCode.NONE,)


def test_a_second_producer_waits_until_the_transaction_of_the_first_is_aborted(tx: TransactionDialogue) -> None:
    first = tx.begun(T0, T1)
    second = tx.init()
    assert second.is_held
    (order,) = tx.write_markers(T0)
    assert second.is_held
    tx.report(order, [T1])
    assert second.producer() == (first[0], 2)
    assert tx.state() is TransactionState.EMPTY
    assert tx.end(first).refused() is FENCED


def test_a_fenced_producer_aborts_no_transaction_of_its_successor(tx: TransactionDialogue) -> None:
    """Apache Kafka 4.3 aborts it, and refuses the fenced producer only then."""
    first = tx.init().producer()
    second = tx.begun()
    assert tx.init(producer_id=first[0], producer_epoch=first[1]).refused() is FENCED
    assert tx.state() is TransactionState.ONGOING
    assert tx.end(second).producer() == (second[0], second[1] + 1)


def test_a_producer_that_goes_on_after_an_error_gets_one_epoch_more(tx: TransactionDialogue) -> None:
    """KIP-360; a repeated request gets the same answer, also where a transaction was open."""
    producer_id, epoch = tx.init().producer()
    of = {"producer_id": producer_id, "producer_epoch": epoch}
    assert tx.init(**of).producer() == (producer_id, epoch + 1)
    assert tx.init(**of).producer() == (producer_id, epoch + 1)
    tx.add((producer_id, epoch + 1))
    answer = tx.init(producer_id=producer_id, producer_epoch=epoch + 1)
    tx.write_markers()
    assert answer.producer() == (producer_id, epoch + 2)
    tx.restart()
    assert tx.end((producer_id, epoch + 2), commit=False).producer() == (producer_id, epoch + 3)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_gets_the_same_answer(tx: TransactionDialogue, commit: bool) -> None:
    """KIP-890: the epoch of the request is the one before the bump, also behind a restart."""
    producer = tx.begun()
    after = tx.end(producer, commit=commit).producer()
    assert after == (producer[0], producer[1] + 1)
    again = tx.end(producer, commit=commit)
    assert again.is_held
    tx.write_markers()
    assert again.producer() == after
    for _ in range(2):
        assert tx.end(producer, commit=commit).producer() == after
        assert tx.end(producer, commit=not commit).refused() is WRONG_STATE
        tx.restart()
    assert tx.init(producer_id=producer[0], producer_epoch=producer[1]).producer() == after


def test_an_end_of_the_older_flow_keeps_the_epoch(tx: TransactionDialogue) -> None:
    producer = tx.begun(version=0)
    assert tx.end(producer, version=0).producer() == producer
    (order,) = tx.write_markers()
    assert (order.producer_epoch, order.version) == (producer[1], 0)
    assert tx.end(producer, version=0).producer() == producer
    assert tx.end(producer, version=0, commit=False).refused() is WRONG_STATE
    assert tx.add(producer, version=0).errors() == (ErrorCode.NONE,)
    assert tx.end(producer, version=0, commit=False).producer() == producer


@pytest.mark.parametrize("commit", [True, False])
def test_a_fenced_producer_repeats_no_end_of_its_successor(tx: TransactionDialogue, commit: bool) -> None:
    """Seed 3531 of the transactions' world; Apache Kafka 4.3 gives the fenced producer its successor's epoch."""
    fenced = tx.init().producer()
    producer = tx.begun(version=0)
    tx.end(producer, commit=commit, version=0)
    tx.write_markers()
    assert tx.end(fenced, commit=commit).refused() is FENCED
    assert tx.end(producer, commit=commit, version=0).producer() == producer


def test_a_transaction_that_took_too_long_fences_its_producer(tx: TransactionDialogue) -> None:
    producer = tx.begun(version=0)
    tx.advance(60_000)
    tx.write_markers()
    assert tx.add(producer, version=0).refused() is FENCED
    assert tx.end(producer, version=0).refused() is FENCED
    # By the later flow the epoch tells that it is the end of the same transaction.
    assert tx.end(producer).refused() is WRONG_STATE
    assert tx.end(producer, commit=False).producer() == (producer[0], producer[1] + 1)


def test_without_epoch_bumps_only_the_coordinator_fences() -> None:
    tx = TransactionDialogue(transaction_version=0)
    producer = tx.begun(version=0)
    tx.advance(60_000)
    (order,) = tx.write_markers()
    assert (order.producer_epoch, order.version) == (producer[1] + 1, 0)
    assert tx.init().producer() == (producer[0], producer[1] + 2)


def test_the_next_transaction_waits_for_the_markers(tx: TransactionDialogue) -> None:
    after = tx.end(tx.begun()).producer()
    added = tx.add(after, T1)
    assert added.is_held
    tx.write_markers()
    assert added.errors() == (ErrorCode.NONE,)
    assert tx.stored().partitions == (T1,)


def test_what_waits_for_too_long_is_told_to_ask_again(tx: TransactionDialogue) -> None:
    after = tx.end(tx.begun()).producer()
    added, fencing = tx.add(after), tx.init()
    tx.advance(999)
    assert added.is_held
    tx.advance(1)
    assert (added.refused(), fencing.refused()) == (CONCURRENT, CONCURRENT)
    tx.write_markers()
    assert tx.add(after).errors() == (ErrorCode.NONE,)


def test_requests_that_waited_are_decided_in_their_order(tx: TransactionDialogue) -> None:
    after = tx.end(tx.begun()).producer()
    added, fencing, late = tx.add(after), tx.init(), tx.add(after, T1)
    tx.write_markers()
    # The second one has ended the transaction that the first one began.
    assert added.errors() == (ErrorCode.NONE,)
    assert (fencing.is_held, late.is_held) == (True, True)
    tx.write_markers()
    assert late.refused() is FENCED
    assert fencing.producer() == (after[0], after[1] + 2)


def test_what_would_be_refused_after_the_transaction_is_refused_at_once(tx: TransactionDialogue) -> None:
    producer = tx.begun()
    tx.end(producer)
    assert tx.add(producer).refused() is FENCED
    assert tx.add((1, 0)).refused() is UNKNOWN
    assert tx.end(producer, commit=False).refused() is WRONG_STATE
    assert tx.init(producer_id=producer[0], producer_epoch=7).refused() is FENCED


def test_few_requests_of_an_id_wait(tx: TransactionDialogue) -> None:
    tx = TransactionDialogue(waiting_limit=2)
    tx.end(tx.begun())
    answers = [tx.init() for _ in range(3)]
    assert [answer.is_held for answer in answers] == [True, True, False]
    assert answers[2].refused() is CONCURRENT


def test_a_client_that_is_gone_gets_no_epoch(tx: TransactionDialogue) -> None:
    tx.end(tx.begun())
    tx.init()
    (command,) = tx.shard.all_waiting()
    tx.shard.abandon(command)
    assert list(tx.shard.all_waiting()) == []
    tx.write_markers()
    assert tx.state() is TransactionState.COMPLETE_COMMIT


def test_verification_answers_for_each_partition(tx: TransactionDialogue) -> None:
    """KIP-890 part 1: a batch for a partition that was not added is refused; nothing is written."""
    producer = tx.begun(T0, version=0)
    written = len(tx.log)
    answer = tx.add(producer, T0, T1, is_verify_only=True, version=1)
    assert answer.errors() == (ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE)
    tx.end(producer, version=0)
    assert tx.add(producer, T0, is_verify_only=True, version=1).refused() is CONCURRENT
    assert tx.add((producer[0], 9), T0, is_verify_only=True, version=1).refused() is FENCED
    tx.write_markers()
    assert tx.add(producer, T0, is_verify_only=True, version=1).errors() == (ErrorCode.TRANSACTION_ABORTABLE,)
    assert len(tx.log) == written + 2


def test_an_abort_without_partitions_bumps_the_epoch_in_one_batch(tx: TransactionDialogue) -> None:
    """KIP-890: the producer cannot know whether its batch arrived before it failed."""
    producer = tx.init().producer()
    for epoch in (1, 2):
        assert tx.end(producer, commit=False).producer() == (producer[0], epoch)
        producer = producer[0], epoch
    assert (tx.markers, len(tx.log)) == ([], 3)
    assert tx.end(producer).refused() is WRONG_STATE


def test_the_epochs_end_in_a_new_producer_id(tx: TransactionDialogue) -> None:
    producer = at_last_epoch(tx)
    after = tx.end(producer).producer()
    assert after == (after[0], 0)
    assert after[0] != producer[0]
    (order,) = tx.markers
    assert (order.producer_id, order.producer_epoch) == (producer[0], LAST_EPOCH + 1)
    added = tx.add(after)
    again = tx.end(producer)
    assert added.is_held
    assert again.is_held
    tx.restart()
    tx.write_markers()
    assert tx.end(producer).producer() == after
    for _ in range(2):
        assert tx.init(producer_id=producer[0], producer_epoch=producer[1]).producer() == after
    assert tx.add(after).errors() == (ErrorCode.NONE,)
    assert tx.end(producer).refused() is UNKNOWN


def test_a_fence_at_the_last_epoch_takes_a_new_producer_id(tx: TransactionDialogue) -> None:
    producer = at_last_epoch(tx)
    second = tx.init()
    tx.write_markers()
    found = second.producer()
    assert found[0] != producer[0]
    assert found[1] == 1, "one epoch for the abort, one for the new producer"


def test_a_timeout_at_the_last_epoch_takes_a_new_producer_id(tx: TransactionDialogue) -> None:
    producer = at_last_epoch(tx, version=0)
    tx.advance(60_000)
    tx.write_markers()
    assert tx.stored().producer_id != producer[0]
    assert tx.stored().producer_epoch == 0


def test_an_idle_producer_at_its_last_epoch_gets_a_new_id(tx: TransactionDialogue) -> None:
    producer = at_last_epoch(tx, version=0)
    tx.end(producer, version=0)
    tx.write_markers()
    first = tx.init(producer_id=producer[0], producer_epoch=producer[1]).producer()
    assert first[1] == 0
    assert tx.init(producer_id=producer[0], producer_epoch=producer[1]).producer() == first
    assert tx.init().producer() == (first[0], 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 4}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 4}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_bad_request_for_an_epoch_is_refused(
    tx: TransactionDialogue, fields: dict[str, object], code: ErrorCode
) -> None:
    assert tx.init(**fields).refused() is code
    assert tx.shard.transactions == {}


def test_ids_and_partitions_have_limits() -> None:
    tx = TransactionDialogue(transactional_id_limit=3, transaction_partition_limit=2)
    producer = tx.begun()
    assert tx.init("another", other_ids=2).refused() is ErrorCode.POLICY_VIOLATION
    tx.init("another", other_ids=1).producer()
    assert tx.add(producer, T0, T1).errors() == (ErrorCode.NONE, ErrorCode.NONE)
    written = len(tx.log)
    assert tx.add(producer, ("u", 0)).refused() is ErrorCode.POLICY_VIOLATION
    assert (len(tx.log), tx.stored().partitions) == (written, (T0, T1))


def test_ids_that_were_opened_and_left_are_forgotten(tx: TransactionDialogue) -> None:
    for index in range(3):
        tx.init(f"id-{index}")
    tx.restart()
    tx.advance(tx.settings.transactional_id_expiration_ms)
    assert tx.shard.transactions == {}
    assert tx.shard.next_deadline() is None
    tx.restart()
    assert tx.shard.transactions == {}


def test_describe_and_list(tx: TransactionDialogue) -> None:
    producer = tx.begun(T0)
    idle = tx.init("another").producer()
    found = tx.ask(DescribeTransaction, transactional_id="tx").as_body(DescribeTransactionReply)
    assert (found.state, found.timeout_ms, found.start_ms) == ("Ongoing", 60_000, tx.now_ms)
    assert (found.producer_id, found.producer_epoch, found.partitions) == (*producer, (T0,))
    assert tx.ask(DescribeTransaction, transactional_id="no").refused() is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert tx.ask(DescribeTransaction, transactional_id="").refused() is ErrorCode.INVALID_REQUEST

    def listed(**filters: object) -> list[str]:
        reply = tx.ask(ListTransactions, **filters).as_body(ListTransactionsReply)
        return [row.transactional_id for row in reply.transactions]

    tx.advance(100)
    assert listed() == ["another", "tx"]
    assert listed(states=("Ongoing", "Nonsense")) == ["tx"]
    assert listed(states=("Nonsense",)) == []
    assert listed(producer_ids=(idle[0],)) == ["another"]
    assert listed(older_than_ms=99, states=("Ongoing",)) == ["tx"]
    assert listed(older_than_ms=100, states=("Ongoing",)) == []
    assert listed(pattern="an.*") == ["another"]
    reply = tx.ask(ListTransactions, states=("Nonsense", "Empty")).as_body(ListTransactionsReply)
    assert reply.unknown_states == ("Nonsense",)
    assert tx.ask(ListTransactions, pattern="(").refused() is ErrorCode.INVALID_REGULAR_EXPRESSION

"""The same requests of producers in transactions to Apache Kafka and to ours, in both flows: the same answers.

A scenario is a line of requests: `p=init` takes the answer's producer id and epoch as p, `add2 p` is of the flow of
KIP-890 part 2 and `add0 p` of the older one, `p+1` has p's id and an epoch more. `send2 p 3` sends a batch with
sequence 3. An answer is a code, and the producer id, by the order in which ids appear, with its epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

import pytest

import kohort
from kohort.errors import ErrorCode
from kohort.records.batch import build_batch
from kohort.wire.messages import add_partitions_to_txn as adding
from kohort.wire.messages import create_topics, produce
from kohort.wire.messages.describe_transactions import DescribeTransactionsRequest
from kohort.wire.messages.end_txn import EndTxnRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from support.dialogues.raw_client import RawClient
from support.peers.apache_broker import ApacheKafka
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache, pytest.mark.timeout(180)]

#: Codes with which a client asks again; ours waits instead of some of them.
AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
TIMEOUT_MS = 400
UNKNOWN_ID = 10**7

SCENARIOS = [
    "p=init, add2 p, q=commit2 p, commit2 p, abort2 p, commit2 q, r=abort2 q",
    "p=init, add2 p, q=abort2 p, abort2 p, commit2 p, add2 p, add2 q, commit2 q, abort2 p",
    "p=init, q=abort2 p, r=abort2 q, abort2 p, commit2 r, abort2 q",
    "p=init, commit2 p",
    "p=init, add2 p, q=commit2 p, add2 q, r=commit2 q, commit2 q, commit2 p",
    "p=init, add0 p, commit0 p, commit0 p, abort0 p, add0 p, abort0 p, abort0 p, commit0 p",
    "p=init, commit0 p, abort0 p",
    "p=init, add2 p, q=init, add2 p, commit2 p, init p, add2 q, commit2 q",
    "p=init, add0 p, q=init, add0 p, commit0 p, commit2 p, init p",
    "p=init, q=init p, r=init p, s=init q, init p, init q",
    "p=init, add2 p, q=init p, init p, add2 q",
    "p=init, add0 p, q=init p, init p, add0 q, commit0 q",
    "p=init, q=init, add2 q, init p, commit2 q",
    "p=init, add2 p, q=commit2 p, r=init p, s=init p, add2 s",
    "p=init, add2 0, commit2 0, init 0, add2 p+5, commit2 p+5, init p+5",
    "add2 0, commit2 0, abort0 0, verify 0",
    "p=init, add2 p, overdue, add2 p, commit2 p, q=abort2 p, init p, add2 q",
    "p=init, add0 p, overdue, add0 p, commit0 p, abort0 p, q=init p",
    "p=init, add2 p, overdue, q=init, add2 q, r=commit2 q",
    "p=init, add2 p, overdue, q=init p, add2 q, r=commit2 q",
    "init:0, init:900001, init:-5, p=init:900000",
    "p=init, add2 p, q=commit2 p, commit2 q, r=abort2 q, abort2 q, commit2 p",
    "p=init, verify p, add0 p, verify p, verify p+3, commit0 p, verify p",
    "p=init, add0 p, q=commit2 p, add0 q, commit0 q, commit0 q",
    "p=init, q=init, add0 q, commit0 q, commit2 p, abort2 p",
    # Batches.
    "p=init, send2 p 0, send2 p 1, q=commit2 p, send2 q 0, r=commit2 q",
    "p=init, send0 p 0, add0 p, send0 p 0, send0 p 1, commit0 p, send0 p 2, add0 p, send0 p 2, commit0 p",
    "p=init, send2 p 0, send2 p 0, send2 p 1, send2 p 0, q=commit2 p",
    "p=init, send2 p 0, q=commit2 p, send2 p 1, send2 q 0, send2 p 1",
    "p=init, send2 p 0, q=init, send2 p 1, send2 q 0, r=commit2 q",
    "p=init, send2 p 1",
    "p=init, send2 p 0, send2 p 2, q=abort2 p, send2 q 0, r=commit2 q",
    "p=init, send2 p 0, overdue, send2 p 1, q=init, send2 q 0, r=commit2 q",
    "p=init, send2 p+1 0, send2 0 0",
    "p=init, add0 p, send0 p 0, abort0 p, send0 p 1, add0 p, send0 p 1, commit0 p",
    "p=init, add2 p, send2 p 0, q=commit2 p, send2 q 5",
    "p=init, add0 p, send0 p 0, q=init, send0 p 1, add0 q, send0 q 0, commit0 q",
    "p=init, send2 p 0, q=abort2 p, r=abort2 q, send2 r 0, s=commit2 r, commit2 r, abort2 r",
    "p=init, send2 p 0, q=init p, send2 q 0, r=commit2 q",
    "p=init, send2 p 0, add2 p, add2 p, verify p, q=commit2 p, verify q",
]
_LATE = "p=init, q=init, add0 q, commit0 q, commit2 p, abort2 p"
#: (scenario, step) -> both answers, and why ours differs.
DIFFERENCES: dict[tuple[str, int], tuple[str, str]] = {
    ("p=init, q=init, add2 q, init p, commit2 q", 4): (
        "INVALID_TXN_STATE there, NONE 0/2 here",
        "a fenced producer's InitProducerId does not abort the transaction of its successor",
    ),
    (_LATE, 4): (
        "NONE 0/1 there, PRODUCER_FENCED here",
        "a fenced producer does not get its successor's epoch by ending what the successor has ended without a bump",
    ),
    (_LATE, 5): ("INVALID_TXN_STATE there, PRODUCER_FENCED here", "the same"),
}


class Side:
    """One broker, as one transactional id sees it."""

    def __init__(self, client: RawClient, transactional_id: str) -> None:
        self._client = client
        self._named = transactional_id
        self._known = {"0": (UNKNOWN_ID, 0)}
        self._order: list[int] = []

    def play(self, scenario: str) -> list[str]:
        return [self._step(step) for step in scenario.split(", ")]

    def _step(self, step: str) -> str:
        name, _, request = step.rpartition("=")
        words = request.split()
        code, producer_id, epoch = self._until_final(*words)
        if name and producer_id >= 0:
            self._known[name] = producer_id, epoch
        if producer_id < 0:
            return code.name
        if producer_id not in self._order:
            self._order.append(producer_id)
        return f"{code.name} {self._order.index(producer_id)}/{epoch}"

    def _until_final(self, *words: str) -> tuple[ErrorCode, int, int]:
        found = [self._ask(*words)]

        def is_final() -> bool:
            if found[-1][0] in AGAIN:
                found.append(self._ask(*words))
            return found[-1][0] not in AGAIN

        until(is_final, what=lambda: f"{words}: {found[-1]}")
        return found[-1]

    def _ask(self, what: str, who: str = "", sequence: str = "0") -> tuple[ErrorCode, int, int]:
        name, _, more = who.partition("+")
        producer_id, epoch = self._known.get(name, (-1, -1))
        epoch += int(more or 0)
        if what.startswith("init"):
            timeout_ms = int(what.partition(":")[2] or TIMEOUT_MS)
            return self._answer(
                InitProducerIdRequest(
                    transactional_id=self._named,
                    transaction_timeout_ms=timeout_ms,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                ),
                4,
            )
        if what == "overdue":
            return self._overdue()
        if what.startswith(("commit", "abort")):
            request = EndTxnRequest(
                transactional_id=self._named,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=what.startswith("commit"),
            )
            answer = self._answer(request, 5 if what.endswith("2") else 4)
            # Until its marker is there, a log takes late batches of the transaction, on both sides.
            until(lambda: not self._state().startswith("Prepare"), what="the markers are not written")
            return answer
        if what.startswith("send"):
            return self._send(producer_id, epoch, int(sequence), version=12 if what.endswith("2") else 11), -1, -1
        return self._add(producer_id, epoch, what), -1, -1

    def _answer(self, request: InitProducerIdRequest | EndTxnRequest, version: int) -> tuple[ErrorCode, int, int]:
        answer = self._client.ask(request, version)
        code = ErrorCode(answer.error_code)
        return (code, answer.producer_id, answer.producer_epoch) if code is ErrorCode.NONE else (code, -1, -1)

    def _add(self, producer_id: int, epoch: int, what: str) -> ErrorCode:
        topics = [adding.AddPartitionsToTxnTopic(name="t", partitions=[0])]
        if what == "add0":
            answer = self._client.ask(
                adding.AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._named,
                    v3_and_below_producer_id=producer_id,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                    transactions=[],
                ),
                3,
            )
            rows = answer.results_by_topic_v3_and_below
        else:
            transaction = adding.AddPartitionsToTxnTransaction(
                transactional_id=self._named,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=what == "verify",
                topics=topics,
            )
            request = adding.AddPartitionsToTxnRequest(
                transactions=[transaction],
                v3_and_below_transactional_id="",
                v3_and_below_producer_id=0,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[],
            )
            rows = self._client.ask(request, 5).results_by_transaction[0].topic_results
        return ErrorCode(rows[0].results_by_partition[0].partition_error_code)

    def _send(self, producer_id: int, epoch: int, sequence: int, *, version: int) -> ErrorCode:
        batch = build_batch(
            [(None, b"value", 1_000, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        rows = [produce.PartitionProduceData(index=0, records=batch)]
        request = produce.ProduceRequest(
            transactional_id=self._named,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[produce.TopicProduceData(name="t", partition_data=rows)],
        )
        answer = self._client.ask(request, version)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def _overdue(self) -> tuple[ErrorCode, int, int]:
        """Wait until the coordinator has aborted the transaction."""
        until(lambda: self._state() == "CompleteAbort", what="the transaction is not aborted")
        return ErrorCode.NONE, -1, -1

    def _state(self) -> str:
        answer = self._client.ask(DescribeTransactionsRequest(transactional_ids=[self._named]), 0)
        return str(answer.transaction_states[0].transaction_state)


def open_side(servers: str) -> RawClient:
    """Connect, and make the topic."""
    client = RawClient(servers)
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    made = client.ask(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert made.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    # Both make the coordinator's topic when they are first asked for it.
    asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
    until(lambda: client.ask(asked, 4).coordinators[0].error_code == ErrorCode.NONE, what="there is no coordinator")
    return client


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[RawClient, RawClient]]:
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with (
        ApacheKafka(properties) as theirs,
        kohort.Broker() as ours,
        open_side(theirs.bootstrap_servers) as there,
        open_side(ours.bootstrap_servers) as here,
    ):
        yield there, here


def test_answers_are_the_same_but_for_reasons(sides: tuple[RawClient, RawClient]) -> None:
    """Where they differ, `DIFFERENCES` says why, and each difference is there."""
    found: dict[tuple[str, int], str] = {}
    for number, scenario in enumerate(SCENARIOS):
        theirs, ours = (Side(client, f"id {number}").play(scenario) for client in sides)
        for step, (their, our) in enumerate(zip_longest(theirs, ours)):
            if their != our:
                found[scenario, step] = f"{their} there, {our} here"
    assert found == {where: told for where, (told, _) in DIFFERENCES.items()}

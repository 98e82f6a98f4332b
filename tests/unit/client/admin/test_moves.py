"""Moves as the admin client asks for them: of brokers that know them, of others, and of groups that are changing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import Admin, TopicPartition
from kohort.client.admin.results.moves import SubmittedMove
from kohort.errors import BrokerError, ErrorCode, UnsupportedFeatureError
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kohort.wire.messages.submit_moves import SubmitMovesRequest, SubmitMovesResponse, SubmittedMoveResult
from kohort.wire.private import API_VERSIONS
from kohort.wire.registry import VERSIONS, AnyApiKey
from kohort.wire.schema import Message
from support.dialogues.scripted_broker import Answer, ScriptedBroker

MOVES = {TopicPartition("t", 3): "b"}


class CoordinatorOfOne:
    """A broker that coordinates every group, which refuses moves with some codes before it takes them."""

    def __init__(self) -> None:
        self.broker: ScriptedBroker | None = None
        self.refusals: list[ErrorCode] = []
        self.asked = 0

    def answer(self, api: AnyApiKey, version: int, request: Message) -> Answer:
        del api, version
        assert self.broker is not None
        at = self.broker.endpoint
        match request:
            case MetadataRequest():
                return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host=at.host, port=at.port)])
            case FindCoordinatorRequest():
                found = Coordinator(key="g", node_id=1, host=at.host, port=at.port)
                return FindCoordinatorResponse(coordinators=[found])
            case SubmitMovesRequest():
                self.asked += 1
                if self.refusals:
                    return SubmitMovesResponse(error_code=self.refusals.pop(0), error_message="not now")
                rows = [SubmittedMoveResult(topic=each.topic, partition=each.partition) for each in request.moves]
                return SubmitMovesResponse(results=rows)
        raise AssertionError(request)


@pytest.fixture
def coordinator() -> Iterator[CoordinatorOfOne]:
    scripted = CoordinatorOfOne()
    with ScriptedBroker(scripted.answer, versions={**VERSIONS, **API_VERSIONS}) as scripted.broker:
        yield scripted


def admin_of(coordinator: CoordinatorOfOne, **options: int) -> Admin:
    assert coordinator.broker is not None
    return Admin(bootstrap_servers=str(coordinator.broker.endpoint), retry_backoff_ms=1, **options)


def test_moves_wait_for_a_group_that_is_changing(coordinator: CoordinatorOfOne) -> None:
    """A target is about to be computed, which would not know of the moves: they are submitted again."""
    coordinator.refusals = [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS]
    with admin_of(coordinator) as admin:
        (move,) = admin.submit_moves("g", MOVES)
    assert move == SubmittedMove(
        topic="t", partition=3, to_member_id="b", move_id="", code=ErrorCode.NONE, message=None
    )
    assert coordinator.asked == 4


def test_a_group_that_changes_all_the_time_is_given_up_in_its_own_words(coordinator: CoordinatorOfOne) -> None:
    coordinator.refusals = [ErrorCode.REBALANCE_IN_PROGRESS] * 1_000
    saying = "REBALANCE_IN_PROGRESS while submitting moves of group g: not now"
    with admin_of(coordinator, default_api_timeout_ms=1_000) as admin, pytest.raises(BrokerError, match=saying):
        admin.submit_moves("g", MOVES)
    assert coordinator.asked > 1


def test_another_refusal_is_an_error_at_once(coordinator: CoordinatorOfOne) -> None:
    coordinator.refusals = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    with admin_of(coordinator) as admin, pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        admin.submit_moves("g", MOVES)
    assert coordinator.asked == 1


def test_a_broker_that_has_no_moves_is_asked_for_none() -> None:
    """One that announces what Apache Kafka does."""
    stock = CoordinatorOfOne()
    with ScriptedBroker(stock.answer) as stock.broker, admin_of(stock) as admin:
        for ask in (
            lambda: admin.submit_moves("g", MOVES),
            lambda: admin.switch_partition("g", TopicPartition("t", 0), "b"),
            lambda: admin.moves("g"),
        ):
            with pytest.raises(
                UnsupportedFeatureError,
                match=f"only kohort's broker moves partitions on request: {stock.broker.endpoint} is a broker",
            ) as why:
                ask()
            assert why.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert stock.asked == 0

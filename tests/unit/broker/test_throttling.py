"""A client beyond its quota: its answer leaves at once with the time, and its connection rests for as long.

The loop's time is virtual, so that waits are exact. Each request of bytes is one window's worth or more.
Source: KIP-219 (answer, then wait); KIP-124 (request time); KIP-599 (changes of topics).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from kohort.broker.connections.measured_request import ROW_BYTES
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.storage.client_quotas import QuotaChange, entity_of
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, encode_request, fetch_request, produce_request
from support.dialogues.login_dialogue import LoginDialogue, config_of
from support.dialogues.wired_connection import WiredConnection, wired_broker

PRODUCE, FETCH = 9, 12


class Scene:
    """A broker with a topic, a connection, and time that passes as the test says."""

    def __init__(self, context: BrokerContext, loop: VirtualLoop) -> None:
        self.context, self.loop = context, loop
        context.cluster.create_topic("t", 1, {})
        self.connection = self.connect()

    def connect(self) -> WiredConnection:
        return WiredConnection(self.context)

    def limit(self, of: dict[str, str | None] | None = None, **limits: float) -> None:
        change = QuotaChange(entity=entity_of(of or {"user": None}), limits=limits)
        self.context.cluster.work.ask([self.context.cluster.quota_change([change], lambda _: None)])

    def feed(self, key: ApiKey, version: int, message: Any, client_id: str = "raw") -> int:
        """Send a request; its bytes."""
        frame = encode_request(key, version, message, client_id=client_id)
        self.connection.feed(frame)
        return len(frame) - 4

    async def ask(self, key: ApiKey, version: int, message: Any) -> Any:
        return await self.connection.ask(key, version, message)

    async def wait_ms(self) -> int:
        """How long the connection rests from now on; requests are answered again then."""
        began = self.loop.time()
        self.feed(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
        await self.connection.receive(ApiKey.API_VERSIONS, 0)
        return round((self.loop.time() - began) * 1000)

    def facts(self) -> dict[str, int]:
        quotas = self.context.client_quotas
        return {"requests": quotas.throttled.total(), "ms": quotas.throttled_ms}


def play(scene: Callable[[Scene], Awaitable[None]], **config: object) -> None:
    async def begin(loop: VirtualLoop) -> None:
        with wired_broker(config) as context:
            await scene(Scene(context, loop))

    run_virtually(begin, Random("throttling"))


def records(size: int) -> bytes:
    return batch_of(bytes(size))


class TestProduce:
    def test_the_answer_leaves_at_once_and_the_connection_rests(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(producer_byte_rate=1_000)
            request = produce_request("t", records(15_000))
            size = scene.feed(ApiKey.PRODUCE, PRODUCE, request)
            ((_, answer),) = scene.connection.take_answers(ApiKey.PRODUCE, PRODUCE)
            assert answer.throttle_time_ms == size - 10_000, "(O - T) / T * W with ten seconds"
            assert answer.responses[0].partition_responses[0].error_code == 0
            assert not scene.connection.connection.is_read
            assert await scene.wait_ms() == answer.throttle_time_ms
            assert scene.connection.connection.is_read
            assert scene.facts() == {"requests": 1, "ms": answer.throttle_time_ms}

        play(scene)

    def test_what_was_sent_ahead_waits_and_others_do_not(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit({"client-id": "slow"}, producer_byte_rate=1_000)
            frame = encode_request(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(11_000)), client_id="slow")
            scene.connection.feed(frame, frame, frame)
            assert len(scene.connection.take_answers(ApiKey.PRODUCE, PRODUCE)) == 1
            other = scene.connect()
            assert (
                await other.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(50_000)))
            ).throttle_time_ms == 0
            assert not scene.connection.has_written
            began = scene.loop.time()
            ((_, second),) = await scene.connection.receive(ApiKey.PRODUCE, PRODUCE)
            assert scene.loop.time() - began == pytest.approx((len(frame) - 4) / 1000 - 10, abs=0.002)
            # Two of them in ten windows and the wait: the rest of the second is paid by a longer one.
            assert second.throttle_time_ms > 10_000
            assert scene.context.cluster.topics["t"].partitions[0].log_end_offset == 3

        play(scene)

    def test_without_an_answer_the_connection_rests_all_the_same(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(producer_byte_rate=1_000, request_percentage=1e-6)
            size = scene.feed(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(15_000), acks=0))
            assert not scene.connection.has_written
            assert scene.connection.connection.is_muted
            assert await scene.wait_ms() == size - 10_000

        play(scene)

    def test_clients_of_one_user_share_a_limit(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit({"user": "ANONYMOUS"}, producer_byte_rate=1_000)
            scene.feed(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(9_000)), client_id="a")
            scene.feed(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(9_000)), client_id="b")
            first, second = (
                answer.throttle_time_ms for _, answer in scene.connection.take_answers(ApiKey.PRODUCE, PRODUCE)
            )
            assert (first, 8_000 < second < 9_000) == (0, True)

        play(scene)

    @pytest.mark.parametrize("cut", [20, None])
    def test_a_client_that_connects_again_waits_for_what_it_owes(self, cut: int | None) -> None:
        """With its first request, as soon as it has begun to come; for eleven windows at most."""

        async def scene(scene: Scene) -> None:
            scene.limit(producer_byte_rate=1_000)
            request = produce_request("t", records(15_000))
            size = scene.feed(ApiKey.PRODUCE, PRODUCE, request)
            again, frame = scene.connect(), encode_request(ApiKey.PRODUCE, PRODUCE, request)
            again.feed(encode_request(ApiKey.METADATA, 9, MetadataRequest(topics=[])))
            assert again.take_answers(ApiKey.METADATA, 9), "what is not limited is answered"
            again.feed(frame[:cut])
            began = scene.loop.time()
            assert again.connection.is_muted
            assert not again.has_written
            if cut is not None:
                assert not again.connection.is_read
                await asyncio.sleep((size - 10_000) / 1000 + 0.001)
                again.feed(frame[cut:])
            ((_, answer),) = await again.receive(ApiKey.PRODUCE, PRODUCE)
            assert scene.loop.time() - began == pytest.approx((size - 10_000) / 1000, abs=0.01)
            assert answer.throttle_time_ms > 10_000
            last = scene.connect()
            last.feed(frame)
            assert last.connection.is_muted
            began = scene.loop.time()
            await last.receive(ApiKey.PRODUCE, PRODUCE)
            assert scene.loop.time() - began == pytest.approx(11, abs=0.01)

        play(scene)


class TestFetch:
    def test_an_answer_that_is_too_much_is_empty_and_does_not_count(self) -> None:
        async def scene(scene: Scene) -> None:
            for _ in range(3):
                await scene.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(6_000)))
            scene.limit(consumer_byte_rate=1_000)
            log = scene.context.cluster.topics["t"].partitions[0]
            batch = log.size_bytes // 3
            first = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", max_bytes=batch))
            assert (first.throttle_time_ms, len(first.responses[0].partitions[0].records)) == (0, batch)
            second = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", offset=1, max_bytes=batch))
            expected_ms = 2 * (batch + ROW_BYTES) - 10_000
            assert (second.throttle_time_ms, second.responses) == (expected_ms, [])
            began = scene.loop.time()
            third = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", offset=1, max_bytes=batch))
            assert scene.loop.time() - began == pytest.approx(expected_ms / 1000, abs=0.002)
            assert third.throttle_time_ms == pytest.approx(0, abs=expected_ms)
            assert scene.facts()["requests"] >= 1

        play(scene)

    def test_no_more_is_read_than_ten_windows_allow(self) -> None:
        async def scene(scene: Scene) -> None:
            for _ in range(5):
                await scene.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(4_000)))
            scene.limit(consumer_byte_rate=1_000)
            answer = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", min_bytes=50_000, max_wait_ms=500))
            size = len(answer.responses[0].partitions[0].records)
            assert 8_000 < size <= 10_000
            assert answer.throttle_time_ms == 0

        play(scene)

    def test_a_batch_that_is_alone_above_the_limit_leaves_all_the_same(self) -> None:
        """Kafka withholds it again and again, and its consumers stand still."""

        async def scene(scene: Scene) -> None:
            await scene.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(50_000)))
            scene.limit(consumer_byte_rate=1_000)
            answer = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t"))
            size = len(answer.responses[0].partitions[0].records)
            assert size > 50_000
            assert answer.throttle_time_ms == size + ROW_BYTES - 10_000
            assert await scene.wait_ms() == answer.throttle_time_ms

        play(scene)

    def test_a_session_goes_on_as_if_the_empty_answer_had_not_been(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(consumer_byte_rate=1_000)
            opened = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", session_epoch=0))
            await scene.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(9_000)))
            within = fetch_request("t", session_epoch=1)
            within.session_id = opened.session_id
            first = await scene.ask(ApiKey.FETCH, FETCH, within)
            assert len(first.responses) == 1
            within.session_epoch = 2
            withheld = await scene.ask(ApiKey.FETCH, FETCH, within)
            assert (withheld.session_id, withheld.error_code, withheld.responses) == (opened.session_id, 0, [])
            assert withheld.throttle_time_ms > 0
            within.session_epoch, within.topics = 3, []
            again = await scene.ask(ApiKey.FETCH, FETCH, within)
            while again.throttle_time_ms:
                within.session_epoch += 1
                again = await scene.ask(ApiKey.FETCH, FETCH, within)
            assert len(again.responses[0].partitions[0].records) > 9_000

        play(scene)

    def test_a_session_does_not_begin_with_an_empty_answer(self) -> None:
        async def scene(scene: Scene) -> None:
            await scene.ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(9_000)))
            scene.limit(consumer_byte_rate=1_000)
            await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t"))
            withheld = await scene.ask(ApiKey.FETCH, FETCH, fetch_request("t", session_epoch=0))
            assert (withheld.session_id, withheld.responses, withheld.throttle_time_ms > 0) == (0, [], True)

        play(scene)

    def test_a_parked_fetch_counts_when_it_is_answered(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(consumer_byte_rate=1_000)
            scene.feed(ApiKey.FETCH, FETCH, fetch_request("t", max_wait_ms=30_000))
            await asyncio.sleep(1.0)
            assert not scene.connection.has_written
            await scene.connect().ask(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(50_000)))
            ((_, answer),) = await scene.connection.receive(ApiKey.FETCH, FETCH)
            assert answer.throttle_time_ms > 0
            assert scene.connection.connection.is_muted

        play(scene)


class TestRequestTime:
    def test_any_request_beyond_it_waits_for_a_window_at_most(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(request_percentage=1e-6)
            answer = await scene.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
            assert answer.throttle_time_ms == 1_000
            assert await scene.wait_ms() == 1_000

        play(scene)

    @pytest.mark.parametrize("version", range(5))
    def test_bytes_that_were_encoded_before_say_it_where_they_have_a_place_for_it(self, version: int) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(request_percentage=1e-6)
            answer = await scene.ask(ApiKey.API_VERSIONS, version, ApiVersionsRequest(client_software_name="a"))
            assert answer.throttle_time_ms == (1_000 if version else 0)
            assert len(answer.api_keys) > 30
            assert scene.connection.connection.is_muted

        play(scene)

    def test_heartbeats_are_no_exception(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(request_percentage=1e-6)
            heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
            answer = await scene.ask(ApiKey.HEARTBEAT, 4, heartbeat)
            assert (answer.error_code, answer.throttle_time_ms) == (ErrorCode.UNKNOWN_MEMBER_ID, 1_000)

        play(scene)

    def test_a_client_below_it_does_not_wait(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(request_percentage=1e6)
            answer = await scene.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
            assert answer.throttle_time_ms == 0
            assert len(scene.context.client_quotas) == 1

        play(scene)

    def test_a_client_that_has_not_logged_in_has_no_quota(self) -> None:
        """Its user is known after the login, and the quota is that user's."""

        async def begin() -> None:
            with wired_broker(config_of()) as context:
                context.logins.start()
                for user in ("ANONYMOUS", "alice"):
                    change = QuotaChange(entity=entity_of({"user": user}), limits={"request_percentage": 1e-6})
                    context.cluster.work.ask([context.cluster.quota_change([change], lambda _: None)])
                client = LoginDialogue(context)
                await client.versions()
                assert (await client.plain("alice", "wonder")).error_code == 0
                assert len(context.client_quotas) == 0
                assert (await client.metadata()).throttle_time_ms == 1_000
                assert context.client_quotas.most_throttled(1) == ["request_percentage(user='alice'):1x:1000ms"]
                context.logins.stop()

        asyncio.run(begin())


class TestMutations:
    def topics(self, *sizes: int, **more: Any) -> CreateTopicsRequest:
        rows = [
            CreatableTopic(name=f"new{number}", num_partitions=size, replication_factor=1)
            for number, size in enumerate(sizes)
        ]
        return CreateTopicsRequest(topics=rows, timeout_ms=60_000, **more)

    def test_what_exceeds_it_is_refused_and_the_rest_is_done(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(controller_mutation_rate=1)
            answer = await scene.ask(ApiKey.CREATE_TOPICS, 7, self.topics(5, 10, 1))
            assert [(row.error_code, row.error_message) for row in answer.topics] == [
                (0, None),
                (0, None),
                (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."),
            ]
            assert answer.throttle_time_ms == 4_000
            assert sorted(scene.context.cluster.topics)[-3:] == ["new0", "new1", "t"]
            assert await scene.wait_ms() == 4_000
            grown = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=9, assignments=None)], timeout_ms=60_000
            )
            assert (await scene.ask(ApiKey.CREATE_PARTITIONS, 3, grown)).results[0].error_code == 0
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=bytes(16))], timeout_ms=60_000)
            refused = await scene.ask(ApiKey.DELETE_TOPICS, 6, gone)
            assert refused.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert refused.throttle_time_ms == 8_000
            assert "t" in scene.context.cluster.topics

        play(scene)

    def test_a_client_that_does_not_know_the_error_waits(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(controller_mutation_rate=1)
            answer = await scene.ask(ApiKey.CREATE_TOPICS, 5, self.topics(5, 10, 1))
            assert [row.error_code for row in answer.topics] == [0, 0, 0]
            assert answer.throttle_time_ms == 5_000
            assert await scene.wait_ms() == 5_000
            gone = DeleteTopicsRequest(topic_names=["new1"], timeout_ms=60_000)
            answer = await scene.ask(ApiKey.DELETE_TOPICS, 4, gone)
            assert (answer.responses[0].error_code, answer.throttle_time_ms) == (0, 10_000)

        play(scene)

    def test_to_ask_whether_it_could_be_done_counts_as_in_kafka(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(controller_mutation_rate=1)
            answer = await scene.ask(ApiKey.CREATE_TOPICS, 7, self.topics(15, 1, validate_only=True))
            assert [row.error_code for row in answer.topics] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]

        play(scene)

    def test_topics_that_come_by_being_asked_for_count(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(controller_mutation_rate=1)
            request = MetadataRequest(topics=[MetadataRequestTopic(name="auto", topic_id=TopicId(bytes(16)))])
            answer = await scene.ask(ApiKey.METADATA, 12, request)
            assert (answer.topics[0].error_code, answer.throttle_time_ms) == (0, 4_000)

        play(scene, **{"num.partitions": 15})


class TestConnections:
    def test_a_connection_that_closes_while_it_rests_is_forgotten(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(producer_byte_rate=1)
            scene.feed(ApiKey.PRODUCE, PRODUCE, produce_request("t", records(5_000)))
            connection = scene.connection.connection
            connection.connection_lost(None)
            await asyncio.sleep(10_000)
            assert connection not in scene.context.connections

        play(scene)

    def test_a_longer_wait_is_not_cut_short_by_another(self) -> None:
        async def scene(scene: Scene) -> None:
            connection = scene.connection.connection
            connection.mute(5_000)
            connection.mute(1_000)
            assert await scene.wait_ms() == 5_000
            connection.mute(1_000)
            connection.mute(5_000)
            assert await scene.wait_ms() == 5_000

        play(scene)

    def test_a_stop_does_not_wait_for_it(self) -> None:
        async def scene(scene: Scene) -> None:
            connection = scene.connection.connection
            connection.mute(5_000)
            connection.finish()
            connection.close()
            assert scene.connection.is_closed

        play(scene)

    def test_quotas_that_are_gone_let_clients_go_on(self) -> None:
        async def scene(scene: Scene) -> None:
            scene.limit(request_percentage=1e-6)
            await scene.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest())
            change = QuotaChange(entity=entity_of({"user": None}), limits={"request_percentage": None})
            scene.context.cluster.work.ask([scene.context.cluster.quota_change([change], lambda _: None)])
            assert await scene.wait_ms() == 1_000, "the wait that was told"
            assert await scene.wait_ms() == 0

        play(scene)

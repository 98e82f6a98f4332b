"""The consumer threading refactor (CTR), sentence by sentence, in both group protocols."""

from __future__ import annotations

import threading

import pytest

from kohort import Broker, Consumer, Producer, TopicPartition
from kohort.client.consumer.application_events import (
    CallbackDone,
    CallbackKind,
    CallbackWanted,
    Chunk,
    ChunkTaken,
    Configured,
    Polled,
    Unsubscribed,
)
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue, batch, orders
from support.dialogues.protocol_dialogue import MODES, at_rest, build, leave_request, offer, want_back
from support.scenarios.client_scenarios import poll_until

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST
#: So long a revocation may take here.
PATIENCE_MS = 20_000


@pytest.fixture(params=MODES)
def member(request: pytest.FixtureRequest) -> ConsumerDialogue:
    """A consumer that has not subscribed yet."""
    return build(request.param, max_poll_interval_ms=PATIENCE_MS, session_timeout_ms=15_000)


def stay(member: ConsumerDialogue, ms: int) -> None:
    """Time passes in a callback; every heartbeat is answered, and asks for nothing new."""
    for _ in range(ms // 1_000):
        member.advance(1_000)
        for send in list(member.open):
            if isinstance(send.request, HeartbeatRequest):
                assert isinstance(member, ClassicDialogue)
                member.beaten()
            elif isinstance(send.request, ConsumerGroupHeartbeatRequest) and send.request.member_epoch > 0:
                member.reply()


# -- states -----------------------------------------------------------------------------------------------------------


def test_background_waits_for_an_acknowledgement(member: ConsumerDialogue) -> None:
    """CTR: "the background thread needs to wait for an acknowledgment event from the callback invocation to proceed
    with the rebalancing safely"."""
    at_rest(member, 0, 1)
    going = want_back(member, 0)
    member.start_callback()
    stay(member, 10_000)
    assert member.state is MemberState.REVOKING_PARTITION
    assert set(orders(*going)) <= member.member.owned, "nobody else may have them yet"

    member.acknowledge(REVOKED, *going)

    assert not set(orders(*going)) & member.member.owned


def test_preparing_rebalance_is_split_in_three(member: ConsumerDialogue) -> None:
    """CTR: "We split the PREPARING_REBALANCE into PREPARE_REVOCATION, and PARTITION_REVOKED, PREPARING_REBALANCE"."""
    at_rest(member, 0)
    seen = [member.state]
    going = want_back(member)
    seen.append(member.state)
    member.start_callback()
    seen.append(member.state)
    member.acknowledge(REVOKED, *going, consumed={0: 3})
    seen.append(member.state)
    member.accept_commit()
    seen.append(member.state)

    assert [state.name for state in seen] == [
        "STABLE",
        "PREPARE_REVOCATION",
        "REVOKING_PARTITION",
        "PARTITION_REVOKED",
        "PREPARING_REBALANCE",
    ]


def test_partitions_that_will_be_revoked_are_paused(member: ConsumerDialogue) -> None:
    """CTR: "PREPARE_REVOCATION: Pause partitions that will be revoked"."""
    at_rest(member, 0, 1)
    assert set(member.fetching()) == set(orders(0, 1))

    going = want_back(member, 0)
    member.serve()

    assert member.state is MemberState.PREPARE_REVOCATION
    assert set(member.fetching()) == set(orders(0, 1)) - set(orders(*going))
    assert [each for each in orders(*going) if member.machine._readings.get(each) is None] == [], "paused, not dropped"


def test_revocation_waits_for_its_callback(member: ConsumerDialogue) -> None:
    """CTR: "REVOKING_PARTITION: Await for the onPartitionRevoked to be completed"."""
    at_rest(member, 0)
    member.poll(p0=3)
    going = want_back(member)
    member.start_callback()
    stay(member, 4_000)

    assert member.state is MemberState.REVOKING_PARTITION
    # What was processed before is committed as ever; the last commit follows the callback.
    for _ in member.find(OffsetCommitRequest):
        member.accept_commit()
    member.acknowledge(REVOKED, *going, consumed={0: 5})
    assert member.commits() == {orders(0)[0]: 5}


def test_revoked_partitions_leave_the_subscription_and_are_committed(member: ConsumerDialogue) -> None:
    """CTR: "PARTITION_REVOKED: Update the subscription. Autocommit"."""
    at_rest(member, 0)
    going = want_back(member)
    member.acknowledge(REVOKED, *going, consumed={0: 7})

    assert member.state is MemberState.PARTITION_REVOKED
    assert member.machine._readings.get(orders(0)[0]) is None
    assert member.commits() == {orders(0)[0]: 7}
    assert member.member.owned == set(orders(0)), "the group hears of it when that is durable"

    member.accept_commit()
    assert member.member.owned == set()


def test_assignment_waits_for_its_callback_and_is_stable_then(member: ConsumerDialogue) -> None:
    """CTR: "ASSIGNING_PARTITIONS: Await for onPartitionAssign to be completed. Upon onPartitionAssign's completion, we
    will move the state to STABLE"."""
    offer(member, 0, 1)
    member.start_callback()
    stay(member, 4_000)
    assert member.state is MemberState.ASSIGNING_PARTITIONS
    assert member.find(FetchRequest) == []

    member.acknowledge(ASSIGNED, 0, 1)

    assert member.state is MemberState.STABLE
    assert set(member.fetching()) == set(orders(0, 1))


# -- points of consideration ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("policy", "rounds"), [("retry_then_leave", 2), ("leave", 1), ("retry", None)])
def test_revocation_that_times_out(mode: str, policy: str, rounds: int | None) -> None:
    """CTR: "What is revocation timed out? Retry, then leave group. Directly leave group. Or continuously retry?"."""
    member = build(mode, max_poll_interval_ms=PATIENCE_MS, session_timeout_ms=15_000, revocation_timeout_policy=policy)
    at_rest(member, 0)
    going = want_back(member)
    member.start_callback()
    for passed in range(1, 5):
        stay(member, PATIENCE_MS)
        has_left = rounds is not None and passed >= rounds
        assert member.state is (MemberState.FENCED if has_left else MemberState.REVOKING_PARTITION)
        if has_left:
            break
    if rounds is None:
        assert len([line for line in member.warnings() if "callback has been running" in line]) == 4
        member.acknowledge(REVOKED, *going)
        assert member.member.owned == set()
    else:
        leave_request(member)
        assert [asked.kind for asked in member.questions] == [REVOKED, LOST]


def test_leaving_sends_the_event_and_unsubscribes(member: ConsumerDialogue) -> None:
    """CTR: "Send a leave group event; unsubscribe from the topics"."""
    at_rest(member, 0, 1)
    member.take(Unsubscribed(ticket="unsubscribe", deadline_ms=member.now_ms + 30_000))
    member.acknowledge(REVOKED, 0, 1, consumed={0: 3})
    member.accept_commit()

    request = leave_request(member)
    assert member.ended("unsubscribe") is None, "the group knows first"
    if isinstance(request, LeaveGroupRequest):
        member.answer(request, LeaveGroupResponse(), version=5)
    else:
        member.reply(epoch=-1)

    assert isinstance(member.ended("unsubscribe"), Complete)
    assert member.state is MemberState.UNSUBSCRIBED
    assert member.machine._readings.all() == []


# -- the fetcher in three parts ---------------------------------------------------------------------------------------


def test_sender_fetches_without_being_asked(member: ConsumerDialogue) -> None:
    """CTR: "we need the background thread to send fetches autonomously": FetchSender."""
    at_rest(member, 0)
    for offset in (0, 5, 10):
        assert member.fetching() == {orders(0)[0]: offset}
        member.serve({0: batch(offset, 5)})

    assert [chunk.next_offset for chunk in member.chunks()] == [5, 10, 15], "nobody has polled"


def test_buffer_keeps_the_sender_from_fetching_too_much() -> None:
    """CTR: "FetchBuffer prevents the FetchSender from sending too many fetches and causing memory issues", in bytes
    (KIP-81), not in fetches."""
    records = batch(0, 5)
    member = build("consumer", fetch_buffer_bytes=2 * len(records))
    at_rest(member, 0)
    fetched = 0
    while member.fetching():
        member.serve({0: batch(fetched, 5)})
        fetched += 5
        assert fetched <= 50, "it does not end"

    member.take(ChunkTaken(sizes={each.partition: each.size_bytes for each in member.chunks()[:1]}))
    assert member.fetching() == {orders(0)[0]: fetched}, "it goes on when the application has taken some"


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_polling_thread_collects_and_decodes(protocol: str) -> None:
    """CTR: "the polling thread to collect fetches when these fetches become available": FetchHandler sits in `poll`,
    callbacks run there, too, and everything else happens on one other thread."""
    before = {thread.ident for thread in threading.enumerate()}
    ran: list[int] = []
    with Broker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("orders", b"one").result(10)
        threads = {thread.ident for thread in threading.enumerate()}
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(["orders"], on_assigned=lambda *_: ran.append(threading.get_ident()))
            (record,) = poll_until(consumer, 1)
            assert len({thread.ident for thread in threading.enumerate()} - threads) == 1
    assert record.value == b"one"
    assert ran == [threading.get_ident()]
    assert threads > before


# -- poll -------------------------------------------------------------------------------------------------------------


def test_poll_is_a_loop_over_events(member: ConsumerDialogue) -> None:
    """CTR: "consumer.poll() will mainly be a loop polling for events from the event handler": what it gets is fetches
    and callback invocations, what it gives are polls and acknowledgements."""
    offer(member, 0)
    (wanted,) = member.delivered(CallbackWanted)
    assert (wanted.kind, wanted.partitions) == (ASSIGNED, tuple(orders(0)))
    member.take(CallbackDone(number=wanted.number, consumed={}, starts=member._starts_for(wanted)))
    member.serve({0: batch(0, 5)})
    (chunk,) = member.delivered(Chunk)
    assert (chunk.offset, chunk.next_offset) == (0, 5)

    member.take(Polled(consumed={orders(0)[0]: 5}))
    member.advance(5_000)

    assert member.commits() == {orders(0)[0]: 5}


def test_answer_to_an_older_invocation_counts_for_nothing(member: ConsumerDialogue) -> None:
    """CTR: acknowledgements belong to one invocation: what was overtaken meanwhile changes nothing."""
    at_rest(member, 0)
    want_back(member)
    stale = member.questions[0]
    member.take(Unsubscribed(ticket="unsubscribe", deadline_ms=member.now_ms + 30_000))
    state = member.state

    member.take(CallbackDone(number=stale.number - 1, consumed={}, starts={}))

    assert member.state is state
    assert member.member.owned == set(orders(0))


def test_new_consumer_is_backward_compatible() -> None:
    """CTR: "The new consumer should be backward compatible": Kafka's calls under their names, and a broker that knows
    neither the consumer protocol nor topic ids is no obstacle (see also tests/interop)."""
    calls = (
        "subscribe unsubscribe subscription assign assignment poll commit committed seek position pause resume paused "
        "beginning_offsets end_offsets offsets_for_times partitions_for wakeup close"
    )
    assert [name for name in calls.split() if not callable(getattr(Consumer, name, None))] == []
    with Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        assert (consumer.assignment(), consumer.subscription(), consumer.paused()) == (set(), set(), set())


# -- alternative proposals --------------------------------------------------------------------------------------------


def test_fetcher_configuration_is_dynamic(member: ConsumerDialogue) -> None:
    """CTR, alternative proposals: "Should some of the fetcher configuration be dynamic": `Consumer.configure`."""
    at_rest(member, 0)
    assert member.expect(FetchRequest).max_wait_ms == 500

    member.take(Configured(settings=member.settings.changed(fetch_max_wait_ms=50)))
    member.serve()

    assert member.fetching() == {orders(0)[0]: 0}
    assert member.expect(FetchRequest).max_wait_ms == 50


def test_prefetch_buffer_is_configurable() -> None:
    """CTR, alternative proposals: "Configurable prefetch buffer"; here `fetch.buffer.bytes`, over all brokers."""
    small, large = (build("consumer", fetch_buffer_bytes=size) for size in (4_096, 1 << 20))
    sizes = []
    for member in (small, large):
        at_rest(member, 0)
        sizes.append(member.expect(FetchRequest).max_bytes)

    assert sizes[0] <= 4_096 < sizes[1] <= 1 << 20
    assert TopicPartition("orders", 0) in small.fetching()

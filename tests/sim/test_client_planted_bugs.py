"""Each kind of mistake that a client may make, planted: some world of the first 200 finds it, by a law that says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.broker.groups.membership_updates import MembershipUpdates
from kohort.client.consumer.application_events import CallbackKind, Chunk
from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.client.consumer.deliveries import Deliveries
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.fetch.fetch_sender import FetchAnswers, FetchSender
from kohort.client.consumer.fetch.fetch_targets import FetchBuffer
from kohort.client.consumer.fetch.partition_state import Reading, Readings
from kohort.client.consumer.membership.classic_member import ClassicMember
from kohort.client.consumer.membership.consumer_member import ConsumerMember
from kohort.client.consumer.membership.member import HeartbeatSchedule
from kohort.client.consumer.membership.states import MemberState
from kohort.client.consumer.offsets.commits import Commits
from kohort.client.core.coordinator_lookup import ReceivedUpdates
from kohort.client.core.driver import Tickets
from kohort.client.producer.core.accumulator import BatchState
from kohort.client.producer.core.producer_machine import ProducerMachine
from kohort.client.producer.core.sender import Sender
from kohort.coordinator import membership_updates
from kohort.coordinator.journal_events.decision_view import ConnectionEnd, DecisionView
from kohort.coordinator.journal_events.open_rebalances import Reads
from kohort.errors import ErrorCode, InvariantViolation
from kohort.simulation.clients.client_world import ClientWorld
from kohort.simulation.clients.plan import FLEETING, Plan, PlannedGroup
from kohort.simulation.network import NetworkQuality
from support.scenarios.finding_seeds import note_seed, seeds_to_play

#: So many worlds are played at most.
SEEDS = 200
#: Three brokers, records for a few of many partitions, a small buffer.
CALM = Plan(
    topics={"t": 6, "u": 3},
    groups=(PlannedGroup(group_id="blue", protocol="consumer", readers=1, auto_commit=True),),
    weights={},
    fetch_buffer_bytes=20_000,
    value_bytes=900,
    perturbed_s=3.0,
)
#: The same, and leaders move.
MOVING = replace(CALM, weights={"move_leader": 1}, perturbed_s=6.0, every_s=0.3)
#: Connections break, and brokers die.
ROUGH = replace(
    CALM,
    weights={"break_connection": 6, "kill_broker": 1, "move_leader": 1},
    quality=NetworkQuality(usual_delay_ms=10, long_delay_ms=10, loss=0.01),
    perturbed_s=8.0,
    every_s=0.3,
)
#: Members come and go.
SHARED = replace(
    CALM,
    groups=(PlannedGroup(group_id="blue", protocol="consumer", readers=3, auto_commit=True),),
    weights={"crash_reader": 1, "add_reader": 1},
    perturbed_s=8.0,
)
#: Brokers hold heartbeats for most of their interval, and applications change their minds.
HELD = replace(
    CALM,
    groups=(PlannedGroup(group_id="blue", protocol="consumer", readers=3, auto_commit=True),),
    habits={"poll": 10, "change_subscription": 3, "be_slow": 2},
    hold_share=0.9,
)
#: The same, far away, and each change is an assignment at once.
HASTY = replace(
    HELD,
    topics={"t": 4, "u": 4, "v": 4, "x": 2},
    habits={"poll_one": 10, "change_subscription": 5, "be_slow": 3},
    quality=NetworkQuality(usual_delay_ms=300),
    perturbed_s=10.0,
    window_ms=0,
)

#: The same on one broker, which all fetch from, and which holds nothing.
TOLD = replace(HASTY, brokers=1, hold_share=0.0)
#: A topic is deleted and made again under members of both protocols, at once and later.
REMADE = replace(
    CALM,
    topics={"t": 2, FLEETING: 2},
    groups=tuple(
        PlannedGroup(group_id=protocol, protocol=protocol, readers=2, auto_commit=True)
        for protocol in ("consumer", "classic")
    ),
    weights={"remake_topic": 1},
    habits={"poll": 10, "commit": 2, "be_slow": 1},
    value_bytes=100,
    perturbed_s=8.0,
    every_s=0.7,
)

#: Requests of membership are lost for longer than a session, and nothing else is; brokers hold heartbeats for long.
TORN = replace(
    CALM,
    brokers=1,
    topics={"t": 2, "u": 1},
    groups=(PlannedGroup(group_id="blue", protocol="consumer", readers=2, auto_commit=True),),
    weights={"lose_coordinator": 1},
    habits={"poll": 1},
    value_bytes=20,
    hold_share=0.9,
    perturbed_s=12.0,
    every_s=4.0,
    fetches_tell=False,
)
#: The same in the other protocol.
TORN_CLASSIC = replace(TORN, groups=(replace(TORN.groups[0], protocol="classic"),))
#: The same with members that keep what they have while they join, as they and others come and go.
TORN_JOINS = replace(
    TORN,
    groups=(PlannedGroup(group_id="blue", protocol="classic", readers=3, auto_commit=True, is_cooperative=True),),
    weights={"lose_coordinator": 2, "add_reader": 1},
    habits={"poll": 20, "leave": 1},
    every_s=1.5,
)

#: One broker that dies, and may be away when a program begins.
LONELY = replace(ROUGH, brokers=1, weights={"kill_broker": 2}, perturbed_s=10.0)


def do_nothing(*_: object) -> None:
    """In place of what should be done."""


def law_that_finds(plan: Plan) -> str:
    """The law that the first world that finds a bug is broken by."""
    for seed in seeds_to_play(SEEDS):
        try:
            ClientWorld(seed, plan=plan).run()
        except InvariantViolation as broken:
            assert f"make seed WORLD=clients SEED={seed}" in str(broken)
            note_seed(seed)
            return broken.law.partition(":")[0]
    return "none"


def test_worlds_without_a_bug_find_none() -> None:
    for plan in (CALM, MOVING, ROUGH, SHARED, HELD, HASTY, TOLD, LONELY, REMADE, TORN, TORN_CLASSIC, TORN_JOINS):
        ClientWorld(0, plan=plan).run()


def test_fetch_that_reserves_what_it_cannot_bring(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the buffer for one broker, whatever it has: the others are not asked meanwhile."""
    monkeypatch.setattr(FetchBuffer, "share", lambda self, _: self.limit_bytes)
    monkeypatch.setattr(FetchSender, "_least", lambda self, _: self.buffer.limit_bytes)
    send = FetchSender._send

    def send_greedily(self: FetchSender, source: Any, due: Any, room: int, now_ms: int) -> None:
        self._settings, before = self._settings.changed(max_partition_fetch_bytes=room * 2), self._settings
        send(self, source, due, room * 4 // 3 + 1, now_ms)
        self._settings = before

    monkeypatch.setattr(FetchSender, "_send", send_greedily)
    assert law_that_finds(CALM) in {"NobodyStarves", "EverythingIsRead"}


def test_paused_data_that_keeps_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchSender, "_make_room", do_nothing)
    assert law_that_finds(CALM) in {"NobodyStarves", "EverythingIsRead"}


def test_bytes_that_are_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchBuffer, "release", do_nothing)
    assert law_that_finds(CALM) in {"NobodyStarves", "EverythingIsRead", "BufferWithinLimit"}


def test_commit_of_what_was_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    consumed = FetchHandler.consumed

    def consumed_ahead(self: FetchHandler, **how: bool) -> dict[Any, Any]:
        return {each: offset + 1 for each, offset in consumed(self, **how).items()}

    monkeypatch.setattr(FetchHandler, "consumed", consumed_ahead)
    assert law_that_finds(CALM) == "NoCommitBeyondDone"


def test_records_of_partitions_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchHandler, "forget", do_nothing)
    assert law_that_finds(SHARED) == "OwnedOnly"


def test_delivery_that_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = Deliveries.deliver

    def deliver_quietly(self: Deliveries, item: object) -> None:
        if isinstance(item, Chunk):
            self._delivered.append(item)
        else:
            deliver(self, item)

    monkeypatch.setattr(Deliveries, "deliver", deliver_quietly)
    assert law_that_finds(replace(CALM, fetch_buffer_bytes=1 << 20)) == "NobodyStarves"


def test_data_of_an_earlier_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    add = FetchHandler.add

    def add_anything(self: FetchHandler, chunk: Chunk) -> None:
        held = self._held.get(chunk.partition)
        add(self, chunk if held is None else replace(chunk, fence=held.fence))

    monkeypatch.setattr(FetchHandler, "add", add_anything)
    assert law_that_finds(replace(CALM, habits={"poll": 5, "seek_back": 5, "be_slow": 1}, perturbed_s=6.0)) in {
        "HandedOutOnce",
        "NoSurprise",
    }


def test_moved_leader_that_is_read_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    on_error = FetchAnswers._on_error

    def reset(self: FetchAnswers, fetch: Any, reading: Any, code: ErrorCode, now_ms: int) -> None:
        on_error(self, fetch, reading, code, now_ms)
        if code.invalidates_metadata:
            self._readings.reset(reading, "the leader has moved")

    monkeypatch.setattr(FetchAnswers, "_on_error", reset)
    assert law_that_finds(MOVING) == "HandedOutOnce"


def test_ticket_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose broker went away before it answered."""
    end = Tickets.end

    def end_well(self: Tickets, ticket: object, value: object, error: Exception | None) -> None:
        if error is None:
            end(self, ticket, value, error)

    monkeypatch.setattr(Tickets, "end", end_well)
    assert law_that_finds(replace(ROUGH, habits={"poll": 2, "ask": 2, "commit": 2})) == "EndsInTime"


def test_retry_with_a_new_sequence_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker cannot know what it has already."""
    again = Sender._try_again

    def renumber(self: Sender, batch: Any, error: Any, now_ms: int) -> None:
        again(self, batch, error, now_ms)
        if batch.state is BatchState.CLOSED and self._accumulator.queues[batch.partition][-1] is batch:
            self._identity._next[batch.partition] = batch.sequence + len(batch.records)
            batch.sequence = None

    monkeypatch.setattr(Sender, "_try_again", renumber)
    assert law_that_finds(ROUGH) in {"StoredOnce", "OrderKept"}


def test_identity_that_is_renewed_before_all_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent and not answered is stored a second time under the new one."""
    monkeypatch.setattr(Sender, "is_settled", property(lambda self: self.is_idle))
    give_up = Sender._try_again

    def give_up_early(self: Sender, batch: Any, error: Any, now_ms: int) -> None:
        if batch.attempts == 1 and batch.partition.partition == 0:
            self.fail(batch, error)
        else:
            give_up(self, batch, error, now_ms)

    monkeypatch.setattr(Sender, "_try_again", give_up_early)
    lossy = NetworkQuality(usual_delay_ms=30, long_delay_ms=60, loss=0.03)
    plan = replace(ROUGH, weights={"break_connection": 6, "kill_broker": 2}, quality=lossy, every_s=0.2)
    assert law_that_finds(plan) in {"StoredOnce", "OrderKept"}


def test_records_that_are_given_up_before_their_first_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a producer that was made while none was there."""

    def give_up(self: ProducerMachine, error: Any, now_ms: int) -> None:
        del now_ms
        self._unrouted.drop_all(error)

    monkeypatch.setattr(ProducerMachine, "_on_unreachable", give_up)
    assert law_that_finds(LONELY) == "BrokersAreAwaited"


def test_interval_that_counts_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member is silent for a hold and an interval."""

    def count_from_answer(
        _: HeartbeatSchedule, sent_ms: int, interval_ms: int, now_ms: int, *, is_cut: bool, former_ms: int = 0
    ) -> int:
        del sent_ms, is_cut
        return now_ms + interval_ms

    monkeypatch.setattr(HeartbeatSchedule, "next_ms", count_from_answer)
    assert law_that_finds(HELD) == "HeartbeatsInTime"


def test_subscription_that_waits_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    next_ms = ConsumerMember._next_ms
    monkeypatch.setattr(ConsumerMember, "_next_ms", lambda self: None if self._in_flight else next_ms(self))
    assert law_that_finds(HELD) == "HeardAtOnce"


def test_overtaken_answer_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat behind it has said that its partitions are free."""
    on_overtaken = ConsumerMember._on_overtaken

    def take(self: ConsumerMember, answer: Any, now_ms: int, *, was_full: bool) -> None:
        on_overtaken(self, answer, now_ms, was_full=was_full)
        if self.state is MemberState.STABLE:
            self._target = self._latest
            self._reconcile(now_ms)

    monkeypatch.setattr(ConsumerMember, "_on_overtaken", take)
    assert law_that_finds(HASTY) == "OneOwner"


def test_word_of_a_fetch_that_acknowledges_a_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was told is what a member knows, not what it has given up."""
    build = membership_updates._heartbeat_of

    def acknowledge(member: Any, command: Any, *, tells_all: bool) -> Any:
        return replace(build(member, command, tells_all=tells_all), topic_partitions=command.assigned)

    monkeypatch.setattr(membership_updates, "_heartbeat_of", acknowledge)
    assert law_that_finds(TOLD) == "OneOwner"


def test_news_of_a_fetch_that_are_taken_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be they older than what is known, or a list on its way that leaves them out."""

    def take(self: ReceivedUpdates, news: Any, sent_ms: int, now_ms: int) -> None:
        assert self.member is not None
        self.member.take_news(news, sent_ms, now_ms)

    monkeypatch.setattr(ReceivedUpdates, "_weigh", take)
    assert law_that_finds(TOLD) in {"OneOwner", "EverythingIsRead", "OwnerIsServed"}


def test_fetch_that_tells_less_than_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = membership_updates._decide

    def tell_less(*given: Any, **more: Any) -> Any:
        decision = decide(*given, **more)
        effects = [
            replace(each, body=replace(each.body, assignment={})) if getattr(each, "body", None) else each
            for each in decision.effects
        ]
        return replace(decision, effects=tuple(effects))

    monkeypatch.setattr(membership_updates, "_decide", tell_less)
    assert law_that_finds(TOLD) == "ToldAlike"


def test_offset_that_is_committed_for_whatever_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is of the topic that was read, which is gone."""
    monkeypatch.setattr(ConsumerMachine, "topic_id_of", do_nothing)
    assert law_that_finds(REMADE) == "OffsetsOfTheirTopic"


def test_commit_that_waits_for_a_topic_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again as long as the call may take, and the application with it."""
    monkeypatch.setattr(Commits, "_find_missing", do_nothing)
    assert law_that_finds(REMADE) == "EachByItself"


def test_reading_that_goes_on_where_it_was_in_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    compare = Readings._compare

    def compare_once(self: Readings, reading: Reading) -> None:
        if reading.topic_id is None:
            compare(self, reading)

    monkeypatch.setattr(Readings, "_compare", compare_once)
    assert law_that_finds(REMADE) == "NothingSkipped"


def test_member_that_counts_its_own_session_where_the_groups_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads on beside its successor."""
    monkeypatch.setattr(
        ConsumerMember, "_session_ms", property(lambda self: self._settings.options["session_timeout_ms"])
    )
    assert law_that_finds(TORN) == "FreedIsLetGo"


def test_member_that_counts_its_session_from_an_answer_which_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator counts from when the heartbeat came."""
    on_answer = ConsumerMember._on_answer

    def count_from_answer(self: ConsumerMember, answer: Any, response: Any, *rest: Any) -> None:
        _, now_ms, _ = rest
        with monkeypatch.context() as patched:
            patched.setattr(self, "_on_heard", lambda _: ConsumerMember._on_heard(self, now_ms))
            on_answer(self, answer, response, *rest)

    monkeypatch.setattr(ConsumerMember, "_on_answer", count_from_answer)
    assert law_that_finds(TORN) == "FreedIsLetGo"


def test_classic_member_that_counts_its_session_from_an_answer_which_was_held(monkeypatch: pytest.MonkeyPatch) -> None:
    on_heartbeat = ClassicMember._on_heartbeat

    def count_from_answer(self: ClassicMember, answer: Any, endpoint: Any, _: int, now_ms: int) -> None:
        on_heartbeat(self, answer, endpoint, now_ms, now_ms)

    monkeypatch.setattr(ClassicMember, "_on_heartbeat", count_from_answer)
    assert law_that_finds(TORN_CLASSIC) == "FreedIsLetGo"


def test_member_that_is_lost_and_whose_records_are_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of what the machine decides reaches the application before it polls, but until when that is good."""
    monkeypatch.setattr(ConsumerMember, "_give_up_silence", lambda *_: False)
    monkeypatch.setattr(Deliveries, "owned_until_ms", property(lambda _: None, do_nothing), raising=False)
    assert law_that_finds(TORN) == "FreedIsLetGo"


def test_partition_that_is_told_to_be_read_until_its_member_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody noticed is left out: 7.8 s without a reader were told as 118 ms."""
    monkeypatch.setattr(Reads, "note", do_nothing)
    monkeypatch.setattr(DecisionView, "_signs", lambda self, _: ConnectionEnd(0, self.now_ms))
    assert law_that_finds(SHARED) == "UnreadAsTold"


def test_member_that_takes_any_fetch_for_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of leaders that do not coordinate, and none at all."""
    monkeypatch.setattr(ConsumerMember, "_counted_until_ms", lambda self: self._beat_ms + 60_000)
    assert law_that_finds(replace(CALM, fetches_count=True)) in {"HeartbeatsInTime", "EverythingIsRead"}


def test_commit_that_releases_partitions_that_the_application_still_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any commit of a member that is asked for them, also before its callback has run."""
    send = Commits._send

    def send_early(self: Commits, commit: Any, *given: Any) -> None:
        member: Any = self._committer._member  # type: ignore[attr-defined]
        opened = None if member is None else member.callbacks.open
        if opened is not None and opened.kind is CallbackKind.REVOKED:
            commit.released = member._released(set(opened.partitions))
        send(self, commit, *given)

    monkeypatch.setattr(Commits, "_send", send_early)
    monkeypatch.setattr(Commits, "_is_last", lambda *_: True)
    assert law_that_finds(TOLD) == "OneOwner"


def test_first_fetch_that_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MembershipUpdates, "fetched", do_nothing)
    assert law_that_finds(SHARED) == "UnreadAsTold"


def test_member_that_hands_out_what_it_has_for_as_long_as_its_join_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JoinGroup may not have arrived, and the coordinator has given what it has to others."""
    monkeypatch.setattr(ClassicMember, "_has_epoch", property(ClassicMember._is_watched))
    assert law_that_finds(TORN_JOINS) == "FreedIsLetGo"

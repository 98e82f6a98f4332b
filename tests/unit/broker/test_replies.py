"""Answers of one socket: they may come late, none overtakes another."""

from __future__ import annotations

import asyncio

import pytest

from kohort.broker.connections.request import MOST_KNOWN_BYTES, TRANSITIONS, ReplyQueue, ReplySlot, SlotState
from kohort.broker.limits.memory import HELD_BYTES, MOST_LONG, ONE_OF, AnswerMemory
from kohort.storage.files.descriptors import HeldBytes

NO_LIMIT = 1 << 30


class Socket:
    """One socket's queue, with slots by name."""

    def __init__(self, limit: int = 100) -> None:
        self.queue = ReplyQueue(limit)

    def reads(self, count: int = 1) -> list[ReplySlot]:
        slots = [ReplySlot() for _ in range(count)]
        for slot in slots:
            self.queue.add(slot)
        return slots

    def writes(self, limit_bytes: int = NO_LIMIT) -> bytes:
        return b"".join(self.queue.take(limit_bytes))


@pytest.fixture
def socket() -> Socket:
    return Socket()


def test_answer_that_is_ready_leaves(socket: Socket) -> None:
    (slot,) = socket.reads()
    slot.fill([b"a"])

    assert socket.writes() == b"a"
    assert slot.state is SlotState.SENT
    assert len(socket.queue) == 0


def test_answer_behind_a_held_one_waits_for_it(socket: Socket) -> None:
    """A parked JoinGroup holds up the heartbeat that was read after it, as Kafka's clients expect."""
    join, heartbeat = socket.reads(2)
    heartbeat.fill([b"heartbeat"])
    assert socket.writes() == b""

    join.fill([b"join "])
    assert socket.writes() == b"join heartbeat"


def test_answer_that_waits_for_the_disk_holds_up_those_behind_it(socket: Socket) -> None:
    produce, metadata = socket.reads(2)
    produce.fill_unsynced([b"produce "])
    metadata.fill([b"metadata"])
    assert socket.writes() == b""

    produce.sync()
    assert socket.writes() == b"produce metadata"


def test_answers_of_one_sync_leave_together(socket: Socket) -> None:
    slots = socket.reads(3)
    for number, slot in enumerate(slots):
        slot.fill_unsynced([b"%d" % number])
    for slot in slots:
        slot.sync()

    assert socket.writes() == b"012"


def test_request_without_an_answer_leaves_nothing_and_holds_up_nobody(socket: Socket) -> None:
    """Produce with acks=0."""
    silent, next_one = socket.reads(2)
    silent.fill([])
    next_one.fill([b"next"])

    assert socket.writes() == b"next"
    assert silent.state is SlotState.SENT


def test_a_write_ends_with_the_answer_that_reaches_its_limit(socket: Socket) -> None:
    for slot in socket.reads(3):
        slot.fill([b"12345", b"67890"])

    assert socket.writes(limit_bytes=11) == b"1234567890" * 2
    assert len(socket.queue) == 1


def test_an_answer_longer_than_the_limit_still_leaves(socket: Socket) -> None:
    (slot,) = socket.reads()
    slot.fill([bytes(1000)])

    assert len(socket.writes(limit_bytes=1)) == 1000


def test_queue_is_full_at_its_limit_and_free_again_when_answers_leave() -> None:
    socket = Socket(limit=2)
    first, _ = socket.reads(2)
    assert socket.queue.is_full

    first.fill([b"a"])
    assert socket.queue.is_full, "an answer that was not written still counts"
    socket.writes()
    assert not socket.queue.is_full


def test_few_long_answers_are_waited_for(socket: Socket) -> None:
    """Requests of twenty bytes each, whose answers are made in turns, would all be there before the first is taken."""
    slots = [ReplySlot() for _ in range(MOST_LONG)]
    for slot in slots:
        assert not socket.queue.is_full
        slot.is_long = True
        socket.queue.add(slot)
    assert socket.queue.is_full

    slots[0].fill([b"long"])
    socket.writes()
    assert not socket.queue.is_full


def test_one_long_answer_is_waited_for_while_memory_is_short() -> None:
    loop, held = asyncio.new_event_loop(), HeldBytes()
    memory = AnswerMemory(loop, held)
    queue = ReplyQueue(100, answers=memory)
    slot = ReplySlot()
    slot.is_long = True
    queue.add(slot)
    assert memory.share() == HELD_BYTES // ONE_OF
    assert not queue.is_full

    blocks = [memoryview(held.block(HELD_BYTES // 8)) for _ in range(4)]
    assert memory.share() == HELD_BYTES // 2 // ONE_OF
    assert queue.is_full

    blocks.clear()
    assert memory.share() == HELD_BYTES // ONE_OF
    assert not queue.is_full
    memory.stop()
    loop.close()


def test_answers_that_wait_for_their_turn_are_counted_by_their_length(socket: Socket) -> None:
    (held,) = socket.reads()
    for _ in range(2):
        assert not socket.queue.is_full
        known = ReplySlot()
        known.fill([bytes(MOST_KNOWN_BYTES // 2)])
        socket.queue.add(known)
    assert socket.queue.is_full

    held.fill([b"held"])
    socket.writes()
    assert not socket.queue.is_full


@pytest.mark.parametrize("is_filled", [False, True])
def test_late_answers_of_a_socket_that_is_gone_are_swallowed(socket: Socket, is_filled: bool) -> None:
    held, unsynced = socket.reads(2)
    unsynced.fill_unsynced([b"never seen"])
    if is_filled:
        held.fill([b"never seen"])

    socket.queue.abandon()

    assert held.state is SlotState.GONE
    assert unsynced.state is SlotState.GONE
    unsynced.sync()
    if not is_filled:
        held.fill([b"late"])
    assert not held.parts and not unsynced.parts
    assert len(socket.queue) == 0


def test_answering_twice_is_a_bug(socket: Socket) -> None:
    (slot,) = socket.reads()
    slot.fill([b"a"])
    with pytest.raises(KeyError):
        slot.fill([b"b"])
    with pytest.raises(KeyError):
        slot.sync()


def test_nothing_comes_back_from_sent() -> None:
    """An answer leaves exactly once."""
    assert all(state is not SlotState.SENT for state, _ in TRANSITIONS)


def test_answer_without_a_place_in_the_order_is_in_nobodys_way(socket: Socket) -> None:
    """librdkafka finds the request of an answer by its number."""
    heartbeat = ReplySlot()
    heartbeat.is_unordered = True
    (join,) = socket.reads()
    socket.queue.add(heartbeat)
    (commit,) = socket.reads()
    commit.fill([b" commit"])
    assert (socket.writes(), len(socket.queue), socket.queue.held_unordered) == (b"", 3, [heartbeat])

    heartbeat.fill([b"heartbeat"])
    assert socket.writes() == b"heartbeat"
    join.fill([b"join"])
    assert socket.writes() == b"join commit"


def test_slots_without_a_place_in_the_order_count_and_go_with_their_connection() -> None:
    socket = Socket(limit=2)
    heartbeats = [ReplySlot(), ReplySlot()]
    for heartbeat in heartbeats:
        heartbeat.is_unordered = True
        socket.queue.add(heartbeat)
    assert socket.queue.is_full

    heartbeats[0].fill([b"too late"])
    socket.queue.abandon()
    assert [heartbeat.state for heartbeat in heartbeats] == [SlotState.GONE, SlotState.GONE]
    assert len(socket.queue) == 0

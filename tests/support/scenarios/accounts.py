"""Situations of real consumers beside a real broker, and the clients' own account of each, compared with `why`.

A consumer notes when it was assigned a partition, when it gave it up or lost it, and when it read records. The
application notes when it started a consumer, closed it, killed it. `disagreements` compares both with the explanation
of the group that the broker's journal gives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from kohort.aio import Admin, Consumer, Producer
from kohort.ids import TopicPartition
from kohort.journal.explain.explanation import GroupExplanation
from kohort.simulation.clients.network import PROGRAM, Network, VirtualLoop

SESSION_S: Final = 3.0
INTERVAL_S: Final = 0.5
CONFIG: Final = {
    "group.consumer.assignment.window.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.registration.timeout.ms": 2_000,
}
#: A client hears of a grant, and the broker of a release, by a heartbeat and a few messages of the network, ms.
TELL_MS: Final = 700
#: An application begins to read at once, and a fetch ends with the first record, ms.
READ_MS: Final = 500
#: A heartbeat is sent so often, and may be held for half as long again: the latest sign of life before a silence, ms.
SIGN_MS: Final = 800
STEP_MS: Final = 100
RECORDS_EVERY_S: Final = 0.2


def now_ms() -> int:
    """The time as the journal's rows have it."""
    return int(time.time() * 1_000)


@dataclass(slots=True)
class Span:
    """A member's time with a partition, as the member saw it; `ended_ms`: `None` if it still has it."""

    partition: TopicPartition
    began_ms: int
    #: When it was told to give it up.
    asked_ms: int | None = None
    ended_ms: int | None = None
    #: When it got records of it.
    read_ms: list[int] = field(default_factory=list)

    @property
    def used_ms(self) -> list[int]:
        """When the consumer used the partition: it works on its records until it gives the partition up."""
        return [*self.read_ms, *([self.ended_ms] if self.ended_ms is not None and self.asked_ms is not None else [])]


@dataclass(slots=True)
class Account:
    """The partitions that one consumer had, and the times of which it knows nothing."""

    name: str
    spans: list[Span] = field(default_factory=list)
    #: When its process was cut off, stood still, or no longer polled; it cannot know what happens then.
    blind_ms: list[tuple[int, int]] = field(default_factory=list)
    #: From when on the application polls no more: the client still fetches ahead.
    busy_ms: int | None = None

    def open(self, partition: TopicPartition) -> Span | None:
        """The present span of a partition."""
        return next((span for span in self.spans if span.partition == partition and span.ended_ms is None), None)

    def of(self, partition: TopicPartition) -> list[Span]:
        """All spans of a partition."""
        return [span for span in self.spans if span.partition == partition]

    def is_busy(self, at_ms: int) -> bool:
        return self.busy_ms is not None and self.busy_ms <= at_ms

    def is_blind(self, at_ms: int, for_ms: int = 0) -> bool:
        return any(began <= at_ms + for_ms and at_ms <= ended for began, ended in self.blind_ms)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that happened to the group by the application's will: when, the trigger that it is, to which member."""

    time_ms: int
    trigger: str
    member: str
    #: How long after it the coordinator may notice.
    within_ms: int
    #: A silence: `why` says when it began.
    is_silence: bool = False


class Play:
    """Consumers of one group, each polling in a task of its own, and the account of each."""

    def __init__(self, address: str, protocol: str, *, topic: str = "t", group: str = "g", patience: int = 1) -> None:
        self.address, self.protocol, self.topic, self.group = address, protocol, topic, group
        #: Within what times an account and `why` may differ.
        self.tell_ms, self.read_ms = TELL_MS * patience, READ_MS * patience
        self.accounts: dict[str, Account] = {}
        self.consumers: dict[str, Consumer] = {}
        self.acts: list[Act] = []
        self.began_ms = now_ms()
        #: What the others wait for at the end, and for which member.
        self.waited: set[tuple[str, str]] = set()
        self.admin = Admin(bootstrap_servers=address, client_id="admin")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._producing: list[asyncio.Task[None]] = []
        self._has_changed = asyncio.Event()
        #: Member -> how long its revocation callback takes, s.
        self.gives_up_s: dict[str, float] = {}
        #: Members that do not poll at present.
        self.busy: set[str] = set()
        #: Consumers that nothing reaches any more.
        self.gone: list[Consumer] = []

    # -- what a situation consists of ---------------------------------------------------------------------------------

    def join(
        self,
        *names: str,
        topics: Sequence[str] = (),
        pattern: str | None = None,
        trigger: str = "member joined",
        **options: Any,
    ) -> None:
        """Start consumers."""
        for name in names:
            before = PROGRAM.set(name)
            if self.protocol == "consumer":
                options = {"group_protocol": "consumer", **options}
            else:
                strategy = "range" if self.protocol == "eager" else "cooperative-sticky"
                options = {
                    "group_protocol": "classic",
                    "partition_assignment_strategy": [strategy],
                    "session_timeout_ms": int(SESSION_S * 1000),
                    "heartbeat_interval_ms": int(INTERVAL_S * 1000),
                    "metadata_max_age_ms": 1_000,
                    **options,
                }
            consumer = self.consumers[name] = Consumer(
                bootstrap_servers=self.address,
                group_id=self.group,
                client_id=name,
                auto_offset_reset="latest",
                allow_auto_create_topics=False,
                **options,
            )
            account = self.accounts.setdefault(name, Account(name))
            if trigger:
                self.act(trigger, name)
            self.subscribe(name, *(topics or [self.topic]), pattern=pattern)
            self._tasks[name] = asyncio.create_task(self._poll(name, consumer, account))
            PROGRAM.reset(before)

    async def subscribe_anew(self, name: str, *topics: str) -> None:
        """A consumer that reads subscribes to other topics."""
        self.busy.add(name)
        await asyncio.sleep(0.2)
        self.act("subscription changed", name)
        self.subscribe(name, *topics)
        self.busy.discard(name)

    def subscribe(self, name: str, *topics: str, pattern: str | None = None) -> None:
        account = self.accounts[name]
        self.consumers[name].subscribe(
            list(topics) if pattern is None else (),
            pattern=pattern,
            on_assigned=partial(self._assigned, account),
            on_revoked=partial(self._revoked, account),
            on_lost=partial(self._lost, account),
        )

    async def leave(self, *names: str, is_named: bool = False) -> None:
        """Close consumers; `is_named`: the group keeps the place of a static member."""
        for name in names:
            task, account = self._tasks.pop(name), self.accounts[name]
            task.cancel()
            await asyncio.wait([task])
            self.miss(name, SESSION_S if is_named else 0, "" if is_named else "member left")
            await self.consumers.pop(name).close()
            assert all(span.ended_ms is not None for span in account.spans), "a closed consumer has given all up"

    def kill(self, *names: str, trigger: str = "session timeout") -> None:
        """End processes: their connections end, and nothing is heard of them again."""
        for name in names:
            self.cut_off(name, trigger)
            for wire in network().of(name):
                wire.is_silent = False
                wire.cut()

    def cut_off(self, name: str, trigger: str = "session timeout") -> None:
        """Let nothing pass from or to a process, for good."""
        network().cut_off(name)
        self.gone.append(self.consumers.pop(name))
        self.miss(name, 1_000_000, trigger)

    def miss(self, name: str, for_s: float, trigger: str = "session timeout") -> None:
        """Note that a member is not heard for some time, of which it knows nothing itself."""
        self.accounts[name].blind_ms.append((now_ms(), now_ms() + int(for_s * 1000) + self.tell_ms))
        if trigger:
            is_silence = trigger != "member left"
            within_ms = int(SESSION_S * 1000) * is_silence + self.tell_ms
            self.act(trigger, name, within_ms=within_ms, is_silence=is_silence)

    def act(self, trigger: str, member: str = "", *, within_ms: int = 0, is_silence: bool = False) -> None:
        """Note a deed; `within_ms`: how long after it the coordinator may notice, 0: at once."""
        self.acts.append(Act(now_ms(), trigger, member, within_ms or self.tell_ms, is_silence))

    def change_topics(self) -> None:
        """Topics change now: the coordinator sees it, or the leader of a classic group with its next metadata."""
        if self.protocol == "consumer":
            self.act("topics changed", within_ms=2_000)
        else:
            self.act("member rejoined", "a", within_ms=3_000)

    def produce(self) -> None:
        """Write a record to each partition every now and then, until the end."""
        before = PROGRAM.set("producer")
        self._producing = [asyncio.create_task(self._produce())]
        PROGRAM.reset(before)

    async def settle(self, count: int = 4) -> None:
        """Wait until the members have all partitions between them, in even shares."""
        async with asyncio.timeout(60):
            while True:
                shares = [len(consumer.assignment()) for consumer in self.consumers.values()]
                if sum(shares) == count and max(shares, default=0) - min(shares, default=0) <= 1:
                    break
                self._has_changed.clear()
                await self._has_changed.wait()
        await asyncio.sleep(TELL_MS / 1000)

    async def settled(self, *names: str, **options: Any) -> None:
        """Start consumers that read records one after the other, and wait for the share of each."""
        self.produce()
        for name in names:
            self.join(name, **options)
            await self.settle()

    async def explain(self) -> GroupExplanation:
        return await self.admin.explain_group(self.group, whole=True)

    async def end(self) -> None:
        """Close everything, also the consumers that nothing reaches."""
        tasks = [*self._tasks.values(), *self._producing]
        for task in tasks:
            task.cancel()
        await asyncio.wait([*tasks, asyncio.create_task(self.admin.close())])
        self.gives_up_s.clear()
        for consumer in [*self.consumers.values(), *self.gone]:
            await consumer.close(0)

    # -- what consumers see -------------------------------------------------------------------------------------------

    async def _poll(self, name: str, consumer: Consumer, account: Account) -> None:
        while True:
            if name in self.busy:
                await asyncio.sleep(0.1)
                continue
            for record in await consumer.poll(0.1):
                span = account.open(TopicPartition(record.topic, record.partition))
                if span is not None:
                    span.read_ms.append(now_ms())

    async def _produce(self) -> None:
        async with Producer(bootstrap_servers=self.address, client_id="producer", linger_ms=0) as producer:
            while True:
                for number in range(4):
                    await producer.send(self.topic, b"x", partition=number)
                await asyncio.sleep(RECORDS_EVERY_S)

    def _assigned(self, account: Account, _: Consumer, partitions: list[TopicPartition]) -> None:
        account.spans += [Span(each, now_ms()) for each in partitions]
        self._has_changed.set()

    async def _revoked(self, account: Account, _: Consumer, partitions: list[TopicPartition]) -> None:
        asked_ms = now_ms()
        if pause_s := self.gives_up_s.get(account.name, 0):
            await asyncio.sleep(pause_s)
        self._close(account, partitions, asked_ms)

    def _lost(self, account: Account, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._close(account, partitions, None)

    def _close(self, account: Account, partitions: list[TopicPartition], asked_ms: int | None) -> None:
        for each in partitions:
            span = account.open(each)
            assert span is not None
            span.asked_ms, span.ended_ms = asked_ms, now_ms()
        self._has_changed.set()


def network() -> Network:
    """The network that the consumers have in virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.network


# -- the comparison ---------------------------------------------------------------------------------------------------

#: What members do by themselves, without a deed of the application: they join again with what they have given up.
_OWN: Final = ("member rejoined",)


def disagreements(play: Play, found: GroupExplanation, ended_ms: int) -> list[str]:
    """Compare the explanation with the clients' accounts; what differs, as sentences."""
    return [
        *_of_triggers(play, found),
        *_of_owners(play, found, ended_ms),
        *_of_moves(play, found),
        *_of_delays(play, found),
        *_of_the_end(play, found, ended_ms),
    ]


def _name(member: str | None) -> str:
    """The client id of a member's name; several processes may have one."""
    return (member or "").partition("/")[0]


def _of_triggers(play: Play, found: GroupExplanation) -> Iterator[str]:
    """Every deed has set a rebalance off, for that reason and at that time; and nothing else has."""
    told = [
        (rebalance, trigger, _name(member))
        for rebalance in found.rebalances
        for trigger in rebalance.triggers
        for member in trigger.members or ("",)
    ]
    for act in play.acts:
        for each in told:
            rebalance, trigger, member = each
            late_ms = trigger.time_ms - act.time_ms
            if (trigger.trigger, member) == (act.trigger, act.member) and 0 <= late_ms <= act.within_ms:
                told.remove(each)
                break
        else:
            yield f"{act.member} {act.trigger} at {act.time_ms}: no rebalance says so"
            continue
        phases = [each for each in rebalance.phases if each.name == "unnoticed" and _name(each.member) == act.member]
        near = range(-SIGN_MS, STEP_MS * 3)
        if act.is_silence and not any(each.began_ms - act.time_ms in near for each in phases):
            yield f"{act.member} was silent from {act.time_ms}, and by why {phases}"
    for _, trigger, member in told:
        if trigger.trigger not in _OWN:
            yield f"why has {trigger.trigger} of {member} at {trigger.time_ms}, and the application has not"


def _of_owners(play: Play, found: GroupExplanation, ended_ms: int) -> Iterator[str]:
    """Each owner by `why` is one by its own account, and the other way round, at every moment."""
    partitions = {TopicPartition(row.topic, row.partition) for row in found.owners}
    partitions |= {span.partition for account in play.accounts.values() for span in account.spans}
    for partition in sorted(partitions):
        rows = [row for row in found.owners if (row.topic, row.partition) == partition]
        for account in play.accounts.values():
            own = [(row.began_ms, row.ended_ms or ended_ms) for row in rows if _name(row.member) == account.name]
            spans = [
                (span.began_ms, span.ended_ms or ended_ms) for span in account.spans if span.partition == partition
            ]
            for at_ms in range(play.began_ms, ended_ms, STEP_MS):
                is_told, has = _is_within(own, at_ms), _is_within(spans, at_ms)
                if is_told == has or account.is_blind(at_ms):
                    continue
                # One hears of the other within some time.
                if not _is_within(spans if is_told else own, at_ms, play.tell_ms):
                    does = "has not" if is_told else "has"
                    yield f"{partition} {at_ms - play.began_ms} ms: {account.name} {does} it, and by why has {own}"
                    break


def _is_within(times: Sequence[tuple[int, int]], at_ms: int, near_ms: int = 0) -> bool:
    return any(began - near_ms <= at_ms < ended + near_ms for began, ended in times)


def _of_moves(play: Play, found: GroupExplanation) -> Iterator[str]:
    """The taker of each move, and the time in which its partition was unread."""
    for rebalance in found.rebalances:
        for move in rebalance.moves:
            partition, granted_ms = TopicPartition(move.topic, move.partition), move.granted_ms
            taker, reader = play.accounts.get(_name(move.taker)), play.accounts.get(_name(move.reader))
            if taker is None or granted_ms is None or taker.is_blind(granted_ms, play.tell_ms):
                continue
            taken = next((span for span in taker.of(partition) if span.began_ms >= granted_ms - STEP_MS), None)
            if taken is None:
                yield f"{move.taker} took {partition} at {granted_ms}, and does not know it"
            elif reader is not None and move.unread_ms is not None and taken.read_ms and not reader.is_busy(granted_ms):
                first_ms = taken.read_ms[0]
                gap_ms = min(first_ms - ms for span in reader.of(partition) for ms in span.used_ms if ms < first_ms)
                # A record comes once in a while, and is handed out some time after it was fetched.
                if (
                    not (0 if move.is_at_most else move.unread_ms - play.read_ms)
                    <= gap_ms
                    <= move.unread_ms + play.read_ms
                ):
                    yield f"{partition} was unread for {gap_ms} ms, and by why for {move.unread_ms}"


def _of_delays(play: Play, found: GroupExplanation) -> Iterator[str]:
    """How long each member took to give up."""
    for rebalance in found.rebalances:
        for delay in rebalance.delays:
            account = play.accounts.get(_name(delay.member))
            if delay.what != "give up" or account is None or delay.ended_ms is None or delay.end:
                continue
            # A member that stands still hears of it later.
            is_blind = account.is_blind(delay.began_ms)
            took = [
                span.ended_ms - (delay.began_ms if is_blind else span.asked_ms)
                for span in account.spans
                if span.partition in delay.partitions
                and span.asked_ms is not None
                and span.ended_ms is not None
                and delay.began_ms <= span.asked_ms <= delay.ended_ms
            ]
            lasted_ms = delay.ended_ms - delay.began_ms
            if not any(each - STEP_MS <= lasted_ms <= each + play.tell_ms for each in took):
                yield f"{delay.member} took {took} ms to give up, and by why {lasted_ms}"


def _of_the_end(play: Play, found: GroupExplanation, ended_ms: int) -> Iterator[str]:
    """What each member has now, and whom the others wait for."""
    waited = {(each.what, _name(each.member)) for each in found.now}
    if waited != play.waited:
        yield f"the others wait for {play.waited}, and by why for {waited}"
    told = {_name(each.member): set(each.partitions) for each in found.members}
    own = {
        account.name: {span.partition for span in account.spans if span.ended_ms is None}
        for account in play.accounts.values()
        if account.name in play.consumers
    }
    if not play.waited and told != own:
        yield f"members have {own}, and by why {told}"

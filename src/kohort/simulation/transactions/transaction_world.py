"""Producers in transactions in a seeded world: a coordinator, its logs, and everything that goes wrong between them.

A run: producers with a few transactional ids, some of them zombies of others, send to the partitions of one broker, of
which the last one stands for committed offsets. Requests and answers are late or lost, markers are written late, twice
or after several tries, the disk is full for a while, the process stands still, the broker is killed and loses what is
not durable. Then all faults end, and everything has to come to rest.

Laws, beside those of `coordinator.transactions.invariants`, which hold after each commit:

- `NothingUndecided`: a marker is written only for a decision that is durable.
- `AllOrNothing`: of one transaction all acknowledged records are committed, or none; as its producer was told.
- `StableOffset`: a partition's last stable offset never falls.
- `OneHolder`: a producer id with an epoch is given to one producer.
- `EndsInTime`: a transaction ends within its timeout, while the broker runs.
- `NothingIsLeft`: in the end no transaction is open or undecided, and no request has lost its answer.
- `FoldIsState`: a restart finds the state that was durable, and in the end the log gives the state.

A seed says everything; nothing reads a clock or draws from elsewhere, so that a failure happens again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final, TypeVar

from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions.commands import (
    AddPartitions,
    AddPartitionsReply,
    AnyCommand,
    EndTransaction,
    EndTransactionReply,
    InitProducer,
    InitProducerReply,
    MarkersWritten,
    Partition,
    ReplyBody,
    TransactionCommand,
)
from kohort.coordinator.transactions.decision import Decision, NeedProducerId, SendMarkers
from kohort.coordinator.transactions.invariants import check_shard, check_step
from kohort.coordinator.transactions.records import (
    Record,
    TransactionForgotten,
    TransactionStored,
    as_stored,
    build_log_batch,
    read_log_batch,
)
from kohort.coordinator.transactions.settings import EPOCH_BUMP_VERSION, TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import COMPLETION, TransactionState
from kohort.errors import ErrorCode, InvariantViolation, Refused
from kohort.ids import CauseId, RequestToken
from kohort.simulation.trace import LawBroken, Story
from kohort.simulation.transactions.partition_log import Entry, SimulatedLog
from kohort.simulation.transactions.producer import Ask, Attempt, SimulatedProducer, Steps, Told
from kohort.testing.clock import VirtualClock

#: Time of an answer that a producer waits for, ms.
_REQUEST_TIMEOUT_MS: Final = 400
#: A transaction may be open for so long beyond its timeout: for markers that are tried again, ms.
_SLACK_MS: Final = 2_500
#: How often it is looked for transactions that take too long, ms.
_LOOK_EVERY_MS: Final = 200
_TOPIC: Final = "t"
_Producer = TypeVar("_Producer", bound=SimulatedProducer)

Then = Callable[[ReplyBody], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPlan:
    """The frame of a world. `weights`: fault -> how often it is drawn; `rate_ms`: mean time between two."""

    partitions: int
    transactional_ids: int
    producers: int
    transactions: int
    timeout_ms: int
    perturbed_ms: int
    rate_ms: int
    weights: dict[str, int]
    #: Probability that a request or an answer is lost; that one is late.
    lost: float
    late: float
    #: Within this time what is late arrives; its producer may have given it up, ms.
    late_ms: int
    #: Probability that a producer is of the flow before KIP-890 part 2.
    older: float
    #: Longest time of a sync of the coordinator's log, ms.
    sync_ms: int
    #: Longest time between the coordinator and the leaders of the partitions, ms.
    remote_ms: int
    #: Longest time until a marker is written, ms.
    marker_ms: int
    #: Whether ids begin just before the end of their epochs.
    is_worn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report of a run."""

    committed: int
    aborted: int
    records: int
    restarts: int

    @property
    def summary(self) -> str:
        """Format the statistics as text."""
        return (
            f"{self.committed} committed and {self.aborted} other transactions, {self.records} records, "
            f"{self.restarts} restarts"
        )


def draw_plan(random: Random) -> TransactionPlan:
    """Draw the frame of a world."""
    faults = {"kill_broker": 3, "kill_producer": 4, "stand_still": 1, "fill_disk": 1, "start_zombie": 2}
    return TransactionPlan(
        partitions=random.randint(1, 4),
        transactional_ids=random.randint(1, 3),
        producers=random.randint(2, 4),
        transactions=random.randint(3, 8),
        timeout_ms=random.choice((200, 500, 1_500)),
        perturbed_ms=random.choice((1_500, 4_000)),
        rate_ms=random.choice((100, 300, 900)),
        weights={fault: weight for fault, weight in faults.items() if random.random() < 0.75},
        lost=random.choice((0.0, 0.02, 0.1)),
        late=random.choice((0.0, 0.03, 0.1)),
        late_ms=random.choice((600, 4_000)),
        older=random.choice((0.0, 0.0, 0.5, 1.0)),
        sync_ms=random.choice((8, 8, 60)),
        remote_ms=random.choice((0, 0, 30, 200)),
        marker_ms=random.choice((10, 10, 200)),
        is_worn=random.random() < 0.15,
    )


class TransactionWorld:
    """The transactions' world of one seed.

    >>> TransactionWorld(1).run().committed > 0
    True
    """

    #: As `make seed WORLD=...` knows it.
    name = "transactions"

    def __init__(self, seed: int, *, plan: TransactionPlan | None = None) -> None:
        self.seed: Final = seed
        self.random: Final = Random(f"transactions {seed}")
        self.plan: Final = draw_plan(self.random) if plan is None else plan
        self.clock: Final = VirtualClock()
        self.story: Final = Story(self.clock)
        self.broker: Final = self.broker_type(self)
        self.attempts: Final[list[Attempt]] = []
        self.producers: list[SimulatedProducer] = []
        #: Producers that are alive -> their steps.
        self._running: Final[dict[SimulatedProducer, Steps]] = {}
        #: Whether faults still occur.
        self.is_perturbed = True
        self.restarts = 0
        #: (producer id, epoch) -> the producer that it was given to.
        self._holders: Final[dict[tuple[int, int], str]] = {}

    @property
    def broker_type(self) -> type[SimulatedBroker]:
        """The class of the broker."""
        return SimulatedBroker

    def run(self) -> Report:
        """Run the world from beginning to end.

        Raises:
            InvariantViolation: a law was broken; the error has the story.
        """
        try:
            self._play()
        except InvariantViolation as error:
            again = f"make seed WORLD={self.name} SEED={self.seed}"
            raise InvariantViolation(f"{error.law} ({again})", [str(self.plan), *self.story.of()]) from error
        committed = sum(attempt.result is True for attempt in self.attempts)
        return Report(
            committed=committed,
            aborted=len(self.attempts) - committed,
            records=sum(not entry.is_marker for log in self.broker.logs for entry in log.entries),
            restarts=self.restarts,
        )

    def chance(self, probability: float) -> bool:
        """Draw whether a fault happens; none does once the faults have ended."""
        return self.is_perturbed and self.random.random() < probability

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Let the broker do something later in this life, and not while it stands still."""
        life = self.broker.life

        def act() -> None:
            if self.broker.life != life:
                return
            if self.broker.still_until_ms > self.clock.now_ms():
                self.clock.at(self.broker.still_until_ms, act)
            else:
                action()

        self.clock.after(delay_ms, act)

    def _play(self) -> None:
        plan = self.plan
        self.broker.start(is_first=True)
        for index in range(plan.producers):
            self._start_producer(f"id-{index % plan.transactional_ids}")
        self._look()
        ends_ms = self.clock.now_ms() + plan.perturbed_ms
        while self.clock.now_ms() < ends_ms:
            self.clock.run_until(self.clock.now_ms() + self.random.randint(1, 2 * plan.rate_ms))
            if plan.weights:
                fault = self.random.choices(list(plan.weights), list(plan.weights.values()))[0]
                getattr(self, f"_{fault}")()
        self.is_perturbed = False
        self.broker.is_disk_full = False
        self.story.tell("world", "faults end")
        rest_ms = plan.late_ms + plan.transactions * 1_500 + 2 * plan.timeout_ms + 2 * _SLACK_MS
        self.clock.run_until(self.clock.now_ms() + rest_ms)
        if not self.broker.is_up:
            raise LawBroken("NothingIsLeft", "the broker is down")
        self._check_end()

    # -- faults -------------------------------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        if self.broker.is_up:
            self.restarts += 1
            self.broker.crash()
            self.clock.after(self.random.choice((5, 100, 1_000)), self.broker.start)

    def _kill_producer(self) -> None:
        if self._running:
            producer = self.random.choice(list(self._running))
            del self._running[producer]
            self.story.tell(producer.name, "is killed")
            self._start_producer(producer.transactional_id)

    def _start_zombie(self) -> None:
        # The former one goes on, and does not know.
        self._start_producer(f"id-{self.random.randrange(self.plan.transactional_ids)}")

    def _stand_still(self) -> None:
        if self.broker.is_up and self.broker.still_until_ms <= self.clock.now_ms():
            gap_ms = self.random.randint(10, self.plan.timeout_ms)
            self.story.tell("broker", f"stands still for {gap_ms} ms")
            self.broker.stand_still(gap_ms)

    def _fill_disk(self) -> None:
        self.broker.is_disk_full = True
        self.story.tell("broker", "has a full disk")

        def heal() -> None:
            self.broker.is_disk_full = False

        self.clock.after(self.random.randint(20, 800), heal)

    # -- producers ----------------------------------------------------------------------------------------------------

    def _start_producer(self, transactional_id: str) -> None:
        self._begin(self._make(SimulatedProducer, "p", transactional_id))

    def _make(self, kind: type[_Producer], letter: str, transactional_id: str) -> _Producer:
        return kind(
            f"{letter}{len(self.producers)}",
            transactional_id,
            version=0 if self.random.random() < self.plan.older else 2,
            timeout_ms=self.plan.timeout_ms,
            partitions=self.plan.partitions + 1,
            transactions=self.plan.transactions,
            random=Random(self.random.random()),
            attempts=self.attempts,
        )

    def _begin(self, producer: SimulatedProducer) -> None:
        self.producers.append(producer)
        self._running[producer] = producer.steps()
        self.story.tell(producer.name, f"starts for {producer.transactional_id}, version {producer.version}")
        self.clock.after(self.random.randint(0, 50), partial(self._step, producer, None))

    def _step(self, producer: SimulatedProducer, told: Told | None) -> None:
        steps = self._running.get(producer)
        if steps is None:
            return
        try:
            found = next(steps) if told is None and producer.producer_id < 0 else steps.send(told)
        except StopIteration:
            del self._running[producer]
            self.story.tell(producer.name, f"ends: {producer.end}")
            return
        if isinstance(found, int):
            self.clock.after(found, partial(self._step, producer, None))
        else:
            self._send(producer, found)

    def _send(self, producer: SimulatedProducer, ask: Ask) -> None:
        """Carry a request to the broker, and its answer back, each of which may be late or lost."""
        is_over = False

        def answer(told: Told | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self.story.tell(producer.name, "is told", told)
                self._step(producer, told)

        def reply(told: Told) -> None:
            if not self.chance(self.plan.lost):
                self.clock.after(self._delay_ms(), partial(answer, told))

        def arrive() -> None:
            if self.broker.is_up:
                self.after(0, partial(self.broker.take, producer, ask, reply))

        self.story.tell(producer.name, "asks", ask)
        if not self.chance(self.plan.lost):
            # Before KIP-890 part 2 nothing tells a late EndTxn from that of the next transaction.
            is_prompt = ask.api == "end" and producer.version < EPOCH_BUMP_VERSION
            self.clock.after(1 if is_prompt else self._delay_ms(), arrive)
        self.clock.after(_REQUEST_TIMEOUT_MS, partial(answer, None))

    def _delay_ms(self) -> int:
        return self.random.randint(100, self.plan.late_ms) if self.chance(self.plan.late) else 1

    # -- laws ---------------------------------------------------------------------------------------------------------

    def on_epoch_given(self, producer: SimulatedProducer, producer_id: int, epoch: int) -> None:
        """Check that no other producer has this epoch."""
        holder = self._holders.setdefault((producer_id, epoch), producer.name)
        if holder != producer.name:
            raise LawBroken("OneHolder", f"{producer.name} gets epoch {epoch} of {producer_id}, which {holder} has")

    def _look(self) -> None:
        """Look for transactions that take too long; again and again."""
        now_ms = self.clock.now_ms()
        for log in self.broker.logs:
            for producer_id, state in log.open_transactions():
                since_ms = max(state.since_ms, self.broker.sound_since_ms)
                if self.broker.is_sound and now_ms - since_ms > self.plan.timeout_ms + _SLACK_MS:
                    raise LawBroken("EndsInTime", f"producer {producer_id} has a transaction open in {log.name}")
        self.clock.after(_LOOK_EVERY_MS, self._look)

    def _check_end(self) -> None:
        broker = self.broker
        for log in broker.logs:
            if open_ones := [producer_id for producer_id, _ in log.open_transactions()]:
                raise LawBroken("NothingIsLeft", f"{open_ones} have transactions open in {log.name}")
            if log.durable != log.stable_offset() != len(log.entries):
                raise LawBroken("NothingIsLeft", f"{log.name} is stable up to {log.stable_offset()}")
        for transaction in broker.shard.transactions.values():
            if transaction.state in COMPLETION or transaction.state is TransactionState.ONGOING:
                raise LawBroken("NothingIsLeft", f"{transaction.transactional_id} is {transaction.state.label}")
        if broker.answers:
            raise LawBroken("NothingIsLeft", f"{len(broker.answers)} requests have no answer")
        if self._running:
            raise LawBroken("NothingIsLeft", f"{[each.name for each in self._running]} have not ended")
        broker.check_fold(broker.log, broker.shard.transactions)
        self._check_results()

    def _check_results(self) -> None:
        """Compare the records that readers see of each transaction with the result that its producer got."""
        found: dict[int, Counter[bool | None]] = {attempt.number: Counter() for attempt in self.attempts}
        for log in self.broker.logs:
            for _, number, is_committed in log.results():
                found[number][is_committed] += 1
        for attempt in self.attempts:
            seen, missing = found[attempt.number][True], found[attempt.number][False]
            told = f"of transaction {attempt.number} of {attempt.producer} {seen} records are committed, {missing} not"
            if seen and missing:
                raise LawBroken("AllOrNothing", told)
            if attempt.result is True and (missing or seen < len(attempt.acknowledged)):
                raise LawBroken("AllOrNothing", f"{told}; it was told that it has committed")
            if attempt.result is not True and attempt.wants is not True and seen:
                raise LawBroken("AllOrNothing", f"{told}; it never wanted to commit")
            if seen and seen < len(attempt.acknowledged):
                raise LawBroken("AllOrNothing", f"{told}; {len(attempt.acknowledged)} were acknowledged")


class SimulatedBroker:
    """The broker: runs the coordinator's shard as the shell does, and keeps its log and the partitions' logs."""

    def __init__(self, world: TransactionWorld) -> None:
        self.world: Final = world
        plan = world.plan
        self.settings: Final = TransactionSettings(
            concurrent_transactions_wait_ms=300, retry_ms=100, transactional_id_expiration_ms=10**9
        )
        #: One more than the plan has: the last stands for `__consumer_offsets`.
        self.logs: Final = [SimulatedLog(f"{_TOPIC}-{index}") for index in range(plan.partitions + 1)]
        #: The coordinator's log, a batch for each decision, and how many of them are durable.
        self.log: list[bytes] = []
        self.durable = 0
        self.shard = TransactionShard(self.settings)
        self.is_up = False
        #: Number of the broker's life: what was to come in an earlier one never comes.
        self.life = 0
        self.is_disk_full = False
        #: End of the time in which the process does nothing.
        self.still_until_ms = 0
        self._unsound_ms = 0
        #: Request -> who is answered.
        self.answers: dict[RequestToken, Then] = {}
        #: (number of batches, action): done once so many batches are durable.
        self._awaiting: list[tuple[int, Callable[[], None]]] = []
        self._next_id = 100
        self._token = 0
        self._is_syncing = False

    @property
    def is_sound(self) -> bool:
        """Return whether the broker runs and can write."""
        return self.is_up and not self.is_disk_full

    @property
    def sound_since_ms(self) -> int:
        """Return the time since which the broker can work."""
        if not self.is_sound:
            self._unsound_ms = self.world.clock.now_ms()
        return self._unsound_ms

    # -- life and death -----------------------------------------------------------------------------------------------

    def start(self, *, is_first: bool = False) -> None:
        """Load the coordinator from its log, and serve."""
        world = self.world
        self.is_up = True
        self._unsound_ms = world.clock.now_ms()
        self.shard = TransactionShard(self.settings)
        if is_first and world.plan.is_worn:
            self._write_worn_ids()
        for batch in self.log:
            for record in read_log_batch(batch):
                self.shard.apply(record)
        self.check_fold(self.log, self.shard.transactions)
        self.shard.on_loaded(world.clock.now_ms())
        self._write_markers(self.shard.take_markers())
        self._settle()

    def crash(self) -> None:
        """Stop at once, and lose a part of the records that are not durable."""
        world = self.world
        self.is_up = False
        self.life += 1
        self.still_until_ms = 0
        del self.log[world.random.randint(self.durable, len(self.log)) :]
        self.durable = len(self.log)
        for log in self.logs:
            log.crash(world.random.randint(log.durable, len(log.entries)), world.clock.now_ms())
        self.answers.clear()
        self._awaiting.clear()
        self._is_syncing = False
        world.story.tell("broker", f"dies; {len(self.log)} batches of the coordinator are left")

    def stand_still(self, gap_ms: int) -> None:
        """Let time pass in which the process does nothing, and its deadlines be postponed."""
        now_ms, life = self.world.clock.now_ms(), self.life
        self.still_until_ms = self._unsound_ms = now_ms + gap_ms

        def wake() -> None:
            if self.life == life:
                self.shard.shift(gap_ms)
                self._settle()

        self.world.clock.after(gap_ms, wake)

    def check_fold(self, batches: Iterable[bytes], state: dict[str, TransactionStored]) -> None:
        """Compare a state with the fold over a log."""
        found: dict[str, TransactionStored] = {}
        for batch in batches:
            for record in read_log_batch(batch):
                if isinstance(record, TransactionStored):
                    found[record.transactional_id] = record
                else:
                    found.pop(record.transactional_id, None)
        if found != {name: as_stored(each) for name, each in state.items()}:
            raise LawBroken("FoldIsState", f"the log gives {found}, the state is {state}")

    def _write_worn_ids(self) -> None:
        for index in range(self.world.plan.transactional_ids):
            self._next_id += 1
            worn = TransactionStored(
                transactional_id=f"id-{index}",
                producer_id=self._next_id,
                previous_producer_id=self._next_id,
                producer_epoch=32_762 + self.world.random.randint(0, 3),
                timeout_ms=self.world.plan.timeout_ms,
                state=TransactionState.EMPTY,
                last_update_ms=self.world.clock.now_ms(),
            )
            batch = build_log_batch([worn], now_ms=self.world.clock.now_ms())
            assert batch is not None
            self.log.append(batch)
        self.durable = len(self.log)

    # -- requests -----------------------------------------------------------------------------------------------------

    def take(self, producer: SimulatedProducer, ask: Ask, reply: Callable[[Told], None]) -> None:
        """Serve a request of a producer."""
        if ask.api == "produce":
            self._produce(producer, ask, reply)
            return
        self._token += 1
        cause = CauseId(self._token)
        name = producer.transactional_id
        command: TransactionCommand
        if ask.api == "init":
            command = InitProducer(
                cause=cause,
                request=RequestToken(cause),
                transactional_id=name,
                timeout_ms=producer.timeout_ms,
                producer_id=ask.producer_id,
                producer_epoch=ask.epoch,
            )
        elif ask.api == "add":
            command = self._adding(producer, ask, version=0)
        else:
            command = EndTransaction(
                cause=cause,
                request=RequestToken(cause),
                transactional_id=name,
                producer_id=ask.producer_id,
                producer_epoch=ask.epoch,
                is_commit=ask.is_commit,
                version=producer.version,
            )

        def then(body: ReplyBody) -> None:
            told = _told(body)
            # A producer of the later flow learns its next epoch with the end of its transaction.
            if told.code is ErrorCode.NONE and told.epoch >= 0:
                self.world.on_epoch_given(producer, told.producer_id, told.epoch)
            reply(told)

        self.handle(command, then)

    def _adding(
        self, producer: SimulatedProducer, ask: Ask, *, version: int, is_verify_only: bool = False
    ) -> AddPartitions:
        self._token += 1
        return AddPartitions(
            cause=CauseId(self._token),
            request=RequestToken(CauseId(self._token)),
            transactional_id=producer.transactional_id,
            producer_id=ask.producer_id,
            producer_epoch=ask.epoch,
            partitions=((_TOPIC, ask.partition),),
            is_verify_only=is_verify_only,
            version=version,
        )

    def _produce(self, producer: SimulatedProducer, ask: Ask, reply: Callable[[Told], None]) -> None:
        log, guard = self.logs[ask.partition], self.logs[ask.partition].markers_of(ask.producer_id)

        def then(body: ReplyBody) -> None:
            # The coordinator may be another broker.
            self.world.after(self.world.random.randint(0, self.world.plan.remote_ms), partial(end, _told(body)))

        def end(told: Told) -> None:
            if told.code is ErrorCode.NONE and log.markers_of(ask.producer_id) != guard:
                # The transaction has ended since it was asked for.
                told = Told(ErrorCode.INVALID_TXN_STATE)
            if told.code is ErrorCode.NONE:
                self._append(log, ask, reply, begins=True)
            else:
                reply(told)

        if log.is_in_transaction(ask.producer_id, ask.epoch):
            self._append(log, ask, reply, begins=False)
        elif producer.version >= EPOCH_BUMP_VERSION:
            self.handle(self._adding(producer, ask, version=producer.version), then)
        else:
            self.handle(self._adding(producer, ask, version=1, is_verify_only=True), then)

    def _append(self, log: SimulatedLog, ask: Ask, reply: Callable[[Told], None], *, begins: bool) -> None:
        entry = Entry(producer_id=ask.producer_id, epoch=ask.epoch, sequence=ask.sequence, attempt=ask.attempt)
        try:
            offset = log.append(entry, begins=begins, now_ms=self.world.clock.now_ms())
        except Refused as refused:
            reply(Told(refused.code))
            return
        self.world.story.tell(log.name, f"has at {offset}", entry)
        self._sync_partition(log, offset + 1, partial(reply, Told(ErrorCode.NONE)))

    def _sync_partition(self, log: SimulatedLog, count: int, then: Callable[[], None]) -> None:
        def sync() -> None:
            log.make_durable(count)
            then()

        self.world.after(self.world.random.randint(0, 6), sync)

    # -- the runner of the shard --------------------------------------------------------------------------------------

    def handle(self, command: AnyCommand, then: Then | None) -> None:
        """Decide and commit a command, and all that follows from it."""
        if then is not None:
            assert isinstance(command, TransactionCommand)
            self.answers[command.request] = then
        request = command.request if isinstance(command, TransactionCommand) else None
        self._commit(self.shard.handle(command, now_ms=self.world.clock.now_ms()), request)
        self._settle()

    def _settle(self) -> None:
        now_ms = self.world.clock.now_ms()
        while (decision := self.shard.expire(now_ms)) is not None:
            self._commit(decision, None if decision.held is None else decision.held.request)
        deadline_ms = self.shard.next_deadline()
        if deadline_ms is not None:
            self.world.after(max(0, deadline_ms - now_ms), self._fire)

    def _fire(self) -> None:
        deadline_ms = self.shard.next_deadline()
        if deadline_ms is not None and deadline_ms <= self.world.clock.now_ms():
            self._settle()

    def _commit(self, decision: Decision, request: RequestToken | None) -> bool:
        now_ms = self.world.clock.now_ms()
        needs = [effect for effect in decision.effects if isinstance(effect, NeedProducerId)]
        if needs:
            self.world.after(self.world.random.randint(0, 5), partial(self._give_id, needs[0]))
            return False
        if decision.records and self.is_disk_full:
            if request is not None:
                self.answers.pop(request)(Refusal(code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return False
        self._check_records(decision.records)
        batch = build_log_batch(decision.records, now_ms=now_ms)
        if batch is not None:
            self.world.story.tell("coordinator", "writes", *decision.records)
            self.log.append(batch)
        replies = self.shard.commit(decision, now_ms=now_ms)
        markers = self.shard.take_markers()
        check_shard(self.shard, now_ms=now_ms)
        for reply in replies:
            self._when_durable(partial(self.answers.pop(reply.request), reply.body))
        if markers:
            self._when_durable(partial(self._write_markers, markers))
        return True

    def _check_records(self, records: Iterable[Record]) -> None:
        state = dict(self.shard.transactions)
        for record in records:
            if isinstance(record, TransactionStored):
                check_step(state, record)
                state[record.transactional_id] = record
            elif isinstance(record, TransactionForgotten):
                del state[record.transactional_id]

    def _give_id(self, needed: NeedProducerId) -> None:
        self._next_id += 1
        self.handle(replace(needed.command, fresh_id=self._next_id), None)

    def _when_durable(self, action: Callable[[], None]) -> None:
        """Do something once all that the coordinator has written is durable."""
        if self.durable == len(self.log):
            action()
            return
        self._awaiting.append((len(self.log), action))
        if not self._is_syncing:
            self._sync()

    def _sync(self) -> None:
        self._is_syncing = True
        count = len(self.log)

        def synced() -> None:
            self.durable = count
            self._is_syncing = False
            done = [action for needed, action in self._awaiting if needed <= count]
            self._awaiting = [each for each in self._awaiting if each[0] > count]
            for action in done:
                action()
            if self._awaiting and not self._is_syncing:
                self._sync()

        self.world.after(self.world.random.randint(0, self.world.plan.sync_ms), synced)

    # -- markers ------------------------------------------------------------------------------------------------------

    def _write_markers(self, orders: Iterable[SendMarkers]) -> None:
        for order in orders:
            for each in order.partitions:
                self.world.after(
                    self.world.random.randint(0, self.world.plan.marker_ms), partial(self._write_marker, order, each)
                )

    def _write_marker(self, order: SendMarkers, each: Partition) -> None:
        world = self.world
        if self.is_disk_full or world.chance(0.1):
            # Its leader cannot write now.
            world.after(100, partial(self._write_marker, order, each))
            return
        if world.chance(0.15):
            # The answer is lost, and the marker is written again; the first one may still come.
            world.after(world.random.randint(5, 150), partial(self._write_marker, order, each))
            if order.version < EPOCH_BUMP_VERSION:
                return
        log = self.logs[each[1]]
        entry = Entry(producer_id=order.producer_id, epoch=order.producer_epoch, is_commit=order.is_commit)
        is_bumped = order.version >= EPOCH_BUMP_VERSION
        try:
            log.mark(entry, is_bumped=is_bumped, now_ms=world.clock.now_ms())
        except Refused as refused:
            # The transaction of the marker has ended, or it was never here.
            world.story.tell(log.name, f"refuses with {refused.code.name}", entry)
            self._report(order, each)
            return
        self._check_decided(order)
        world.story.tell(log.name, "has the marker", entry)
        self._sync_partition(log, len(log.entries), partial(self._report, order, each))

    def _report(self, order: SendMarkers, each: Partition) -> None:
        command = MarkersWritten(
            cause=CauseId(0),
            transactional_id=order.transactional_id,
            producer_id=order.producer_id,
            producer_epoch=order.producer_epoch,
            coordinator_epoch=order.coordinator_epoch,
            partitions=(each,),
            number=order.number,
        )
        if not self._commit(self.shard.handle(command, now_ms=self.world.clock.now_ms()), None):
            self.world.after(100, partial(self._report, order, each))
        elif self.world.chance(0.1):
            self.world.after(self.world.random.randint(1, 300), partial(self._report, order, each))
        self._settle()

    def _check_decided(self, order: SendMarkers) -> None:
        """Check that a crash cannot lose the decision of a marker."""
        wanted = TransactionState.PREPARE_COMMIT if order.is_commit else TransactionState.PREPARE_ABORT
        for batch in reversed(self.log[: self.durable]):
            for record in read_log_batch(batch):
                if (
                    isinstance(record, TransactionStored)
                    and record.state is wanted
                    and (record.producer_id, record.producer_epoch) == (order.producer_id, order.producer_epoch)
                ):
                    return
        raise LawBroken("NothingUndecided", f"a marker is written for {order}, which may be lost")


def _told(body: ReplyBody) -> Told:
    match body:
        case Refusal():
            return Told(body.code)
        case InitProducerReply() | EndTransactionReply():
            return Told(ErrorCode.NONE, body.producer_id, body.producer_epoch)
        case AddPartitionsReply():
            return Told(body.errors[0])
        case _:
            raise AssertionError(f"not an answer to a producer: {body!r}")

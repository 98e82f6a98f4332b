"""Spark's exactly-once sink in the transactions' world: queries that copy rows, one transaction a micro-batch.

A run: drivers take an epoch when the writer is pickled, read which batch is written, run tasks, and end the transaction
by a writer of its own. They are killed at any step, come back, or go on beside their successor; tasks fail; checkpoints
are put back to an older copy; and all that happens to producers in `transaction_world`, whose laws hold as well.

Laws, of what a reader of committed records sees:

- `Once`: no row is there twice.
- `Whole`: of a batch that was written all rows are there, and of any other none.
- `NothingMissing`: in the end all rows of a query are there, unless its checkpoint was put back and it is refused.

Source: `kohort.spark.exactly_once`, whose steps these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, NamedTuple

from kohort.errors import ErrorCode
from kohort.simulation.trace import LawBroken
from kohort.simulation.transactions.producer import Ask, Attempt, SimulatedProducer, Steps, Told
from kohort.simulation.transactions.transaction_world import (
    Report,
    SimulatedBroker,
    TransactionPlan,
    TransactionWorld,
    draw_plan,
)

#: Most rows of a batch.
_MOST_ROWS: Final = 4
#: Probability that a task fails behind a row.
_FAILS: Final = 0.03
Step = Generator[int | Ask, Told | None, bool]


class Batch(NamedTuple):
    """A planned micro-batch: the rows from `start` to `end`; another plan has another `digest`."""

    start: int
    end: int
    digest: int


@dataclass
class SimulatedQuery:
    """A query over all of its lives: its rows, and its checkpoint."""

    transactional_id: str
    rows: int
    #: Spark's offset log, and how many of its batches the commit log has.
    offsets: list[Batch] = field(default_factory=list)
    commits: int = 0
    #: Earlier states of the checkpoint.
    copies: list[tuple[list[Batch], int]] = field(default_factory=list)
    is_refused: bool = False


class SimulatedSink(SimulatedProducer):
    """One life of a query's driver, with its tasks; it starts the query again when a batch has failed."""

    query: SimulatedQuery
    world: SinkWorld

    def steps(self) -> Steps:
        """Run batches until all rows are written."""
        while not self.query.is_refused and (number := self._plan()) is not None:
            yield self.random.randint(0, 80)
            if (yield from self._run_batch(number, self.query.offsets[number])):
                # Spark's commit log is written behind the transaction.
                yield self.random.randint(0, 30)
                self._log_commit(number)
            elif self.world.is_replaced(self):
                self.end = "replaced"
                return
        self.end = "refused" if self.query.is_refused else "done"

    def _plan(self) -> int | None:
        """Return the number of the batch to run, logged before; `None`: there are no more rows."""
        query = self.query
        if query.commits == len(query.offsets):
            start = query.offsets[-1].end if query.offsets else 0
            if start == query.rows:
                return None
            end = min(query.rows, start + self.random.randint(1, _MOST_ROWS))
            query.offsets.append(Batch(start, end, self.world.next_digest()))
        return query.commits

    def _log_commit(self, number: int) -> None:
        query = self.query
        if query.commits == number < len(query.offsets):
            query.copies.append((list(query.offsets), query.commits))
            query.commits += 1

    def _run_batch(self, number: int, batch: Batch) -> Step:
        """Write a batch, unless it is written; return whether Spark may log it."""
        found = yield from self._begin()
        if found is None:
            return False
        written, digest = found
        if written > number:
            if (written, digest) == (number + 1, batch.digest):
                return True
            if self.query.offsets[number : number + 1] == [batch]:
                self.query.is_refused = True
            return False
        if not (yield from self._run_tasks(batch)):
            # Fences all tasks.
            yield from self._init(is_new=False)
            return False
        return (yield from self._commit(number, batch))

    def _begin(self) -> Generator[int | Ask, Told | None, tuple[int, int] | None]:
        """Take an epoch, which ends an earlier attempt's transaction, and read the marker."""
        if not (yield from self._init(is_new=True)):
            return None
        return (yield from self._read_marker())

    def _read_marker(self) -> Generator[int | Ask, Told | None, tuple[int, int] | None]:
        told = yield from self._repeat(Ask(api="read"), patience=20)
        return None if told is None or told.code is not ErrorCode.NONE else (told.producer_id, told.epoch)

    def _run_tasks(self, batch: Batch) -> Step:
        added: set[int] = set()
        for row in range(batch.start, batch.end):
            place = row % (self._partitions - 1)
            attempt = Attempt(self.world.note(self.query, row=row), self.name)
            if (yield from self._send(attempt, place, added)) != "sent":
                return False
            if self.world.is_perturbed and self.random.random() < _FAILS:
                self.world.story.tell(self.name, "a task fails")
                return (yield from self._fail_task(batch, added))
        return True

    def _fail_task(self, batch: Batch, added: set[int]) -> Step:  # what a bug needs
        """Fail the batch with its task: records of it are in the transaction."""
        yield 1
        return False

    def _commit(self, number: int, batch: Batch) -> Step:
        """Write the marker, and end the transaction, with the ids that the tasks had."""
        marker = Attempt(self.world.note(self.query, marker=(number + 1, batch)), self.name)
        if (yield from self._send(marker, self._partitions - 1, set())) != "sent":
            return False
        return (yield from self._end(is_commit=True))

    def _end(self, *, is_commit: bool) -> Step:
        told = yield from self._repeat(self._ask("end", is_commit=is_commit), patience=20)
        return told is not None and told.code is ErrorCode.NONE


class SinkBroker(SimulatedBroker):
    """A broker that answers which batch of a query is written."""

    world: SinkWorld  # type: ignore[misc]

    def take(self, producer: SimulatedProducer, ask: Ask, reply: Callable[[Told], None]) -> None:
        """Serve a request of a driver."""
        if ask.api != "read":
            super().take(producer, ask, reply)
            return
        log, latest = self.logs[-1], (0, -1)
        for offset, number, is_committed in log.results():
            query, _, marker = self.world.notes[number]
            if query.transactional_id == producer.transactional_id and marker is not None:
                if is_committed is None or offset >= log.stable_offset():
                    # UNSTABLE_OFFSET_COMMIT: the transaction is not decided yet.
                    reply(Told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
                    return
                if is_committed:
                    latest = (marker[0], marker[1].digest)
        reply(Told(ErrorCode.NONE, *latest))


class SinkWorld(TransactionWorld):
    """The sink's world of one seed.

    >>> SinkWorld(1).run().committed > 0
    True
    """

    name = "sinks"
    sink_type = SimulatedSink

    @property
    def broker_type(self) -> type[SimulatedBroker]:
        """The class of the broker."""
        return SinkBroker

    def __init__(self, seed: int, *, plan: TransactionPlan | None = None) -> None:
        #: What each record of a log is: its query, and its row or the marker with number and batch.
        self.notes: Final[list[tuple[SimulatedQuery, int, tuple[int, Batch] | None]]] = []
        self.queries: Final[dict[str, SimulatedQuery]] = {}
        self._digest = 0
        if plan is None:
            drawn = draw_plan(Random(f"sinks {seed}"))
            weights = {**drawn.weights, "put_back": 1} if seed % 3 == 0 else drawn.weights
            # A batch that takes longer than its transaction may is never written.
            timeout_ms = max(1_500, drawn.timeout_ms)
            plan = replace(drawn, weights=weights, producers=drawn.transactional_ids, timeout_ms=timeout_ms)
        super().__init__(seed, plan=plan)

    def run(self) -> Report:
        """Run the world from beginning to end; batches count as transactions."""
        report = super().run()
        batches = sum(query.commits for query in self.queries.values())
        return replace(report, committed=batches, aborted=0)

    def next_digest(self) -> int:
        """Return a number that no other plan of this world has."""
        self._digest += 1
        return self._digest

    def is_replaced(self, sink: SimulatedSink) -> bool:
        """Return whether a later driver of the same query lives: both would fence each other for ever."""
        later = list(self._running)[list(self._running).index(sink) + 1 :]
        return any(each.transactional_id == sink.transactional_id for each in later)

    def note(self, query: SimulatedQuery, *, row: int = -1, marker: tuple[int, Batch] | None = None) -> int:
        """Return the number by which a log knows a row, or a marker."""
        self.notes.append((query, row, marker))
        return len(self.notes) - 1

    def _start_producer(self, transactional_id: str) -> None:
        query = self.queries.setdefault(
            transactional_id, SimulatedQuery(transactional_id, self.plan.transactions * _MOST_ROWS // 2)
        )
        sink = self._make(self.sink_type, "d", transactional_id)
        sink.query, sink.world = query, self
        self._begin(sink)

    def _put_back(self) -> None:
        query = self.random.choice(list(self.queries.values()))
        if not query.copies:
            return
        for sink in [each for each in self._running if each.transactional_id == query.transactional_id]:
            del self._running[sink]
        offsets, query.commits = self.random.choice(query.copies)
        # The open batch of a copy may be in it or not.
        query.offsets = list(offsets[: query.commits + self.random.randint(0, 1)])
        self.story.tell(query.transactional_id, f"its checkpoint is put back to {query.commits}")
        self._start_producer(query.transactional_id)

    def _check_results(self) -> None:
        seen: dict[str, Counter[int]] = {name: Counter() for name in self.queries}
        written: dict[str, set[int]] = {name: set() for name in self.queries}
        for log in self.broker.logs:
            for _, number, is_committed in log.results():
                query, row, marker = self.notes[number]
                if is_committed and marker is None:
                    seen[query.transactional_id][row] += 1
                elif is_committed and marker is not None:
                    written[query.transactional_id].update(range(marker[1].start, marker[1].end))
        for name, query in self.queries.items():
            if twice := [row for row, count in seen[name].items() if count > 1]:
                raise LawBroken("Once", f"rows {twice} of {name} are there twice")
            if set(seen[name]) != written[name]:
                odd = sorted(set(seen[name]) ^ written[name])
                raise LawBroken("Whole", f"rows {odd} of {name} are there without their batch, or it without them")
            if not query.is_refused and len(seen[name]) != query.rows:
                raise LawBroken("NothingMissing", f"{len(seen[name])} of {query.rows} rows of {name} are there")

"""A round of the hand-over: two real queries share a group, things happen to them, and each record is accounted for.

Laws: nothing is missing, ever; nothing is doubled while every query that ended came back within its session, or ended
clean; otherwise only what the batch in doubt had planned.
Source: P4; files named (query, batch id), of which the last writing counts.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Event
from typing import Final, Protocol

import kohort
from support.peers.handover_driver import PATIENCE_S, Driver
from support.waiting import until

PARTITIONS: Final = 4
#: So many records at a time: ten a partition at first.
RECORDS: Final = 40
#: Longer than any driver takes to start anew, and shorter than every one.
LONG_SESSION_MS: Final = 300_000
SHORT_SESSION_MS: Final = 6_000
#: How long a broker is away at most.
AWAY_S: Final = 6.0
_OFTEN, _SELDOM = "300 milliseconds", "2 seconds"
_PAUSE: Final = Event()


class RestartableBroker(Protocol):
    """What both kinds of brokers can do."""

    @property
    def address(self) -> str: ...

    def kill(self) -> None: ...

    def revive(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What happens in a round, in this order, and how the group and its queries are set."""

    seed: int
    events: Sequence[str]
    #: Whether the group waits for a query longer than that can be away.
    is_patient: bool = True
    #: What tells the reader that a batch is finished, beside the next one: "nothing", "listener" or "location".
    told_by: str = "nothing"
    protocol: str = "consumer"
    #: Whether both queries begin together; otherwise the second one joins when the first has read all.
    is_at_once: bool = False
    #: How the first query ends: "drain", or "kill all", after which the other one takes over; then nobody is patient.
    ends_by: str = "drain"


def build_plan(seed: int) -> Plan:
    """The same for the same seed."""
    chance = Random(seed)
    is_patient = chance.random() < 0.6
    return Plan(
        seed=seed,
        events=chance.sample(list(EVENTS), k=chance.randint(3, 5)),
        is_patient=is_patient,
        told_by=chance.choice(("nothing", "listener", "location")),
        protocol=chance.choice(("consumer", "consumer", "classic")),
        is_at_once=chance.random() < 0.5,
        ends_by="drain" if is_patient else chance.choice(("drain", "kill all")),
    )


class Job:
    """One of the two queries of a round."""

    def __init__(self, name: str, driver: Driver, folder: Path) -> None:
        self.name = name
        self.driver = driver
        self._folder = folder

    def written(self) -> list[int]:
        """Values in its files."""
        return [row[2] for path in self._folder.glob(f"{self.name}-*.json") for row in json.loads(path.read_text())]

    def begun(self) -> int:
        """How many batches it has begun to write."""
        return len(list(self._folder.glob(f"{self.name}-*.begun")))

    def finished(self) -> int:
        """How many batches are in Spark's commit log."""
        return len([path for path in self._folder.glob(f"{self.name}-checkpoint/commits/*") if path.name.isdigit()])

    def planned(self) -> dict[int, range]:
        """Partition -> offsets of the last batch in Spark's offset log."""
        batches = [path for path in self._folder.glob(f"{self.name}-checkpoint/offsets/*") if path.name.isdigit()]
        if not batches:
            return {}
        newest = max(batches, key=lambda path: int(path.name))
        topics = json.loads(newest.read_text().splitlines()[2])["topics"]
        return {
            int(number): range(span["from"], span["to"]) for spans in topics.values() for number, span in spans.items()
        }

    def has_ended(self) -> bool:
        """Whether the query itself has."""
        return not self.driver.ask("state")["active"]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Its tasks wait."""
        with open(self._folder / f"{self.name}.gate", "ab") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield


class Round:
    """`run` plays the plan; what is wrong is an AssertionError that tells the story, and ends the drivers."""

    def __init__(self, plan: Plan, drivers: tuple[Driver, Driver], broker: RestartableBroker, folder: Path) -> None:
        self.plan = plan
        self._broker = broker
        self._chance = Random(plan.seed)
        self._name = f"round-{plan.seed}-{folder.name}"
        self._jobs = tuple(Job(name, driver, folder) for name, driver in zip(("one", "two"), drivers, strict=True))
        self._folder = folder
        self._partitions = PARTITIONS
        #: How often the topic was made, by which offsets of one are told from those of the next.
        self._topics = 0
        #: (topic, partition, offset) -> value.
        self._sent: dict[tuple[int, int, int], int] = {}
        #: Values that may be read twice.
        self._doubted: set[int] = set()
        self._running: set[str] = set()
        #: What has happened, each line with its second.
        self.story: list[str] = []
        self._began_s = time.monotonic()

    def run(self) -> None:
        """All of it, and the account."""
        with kohort.Admin(bootstrap_servers=self._broker.address) as self._admin:
            try:
                self._play()
            except BaseException as why:
                why.add_note("\n".join([f"{self.plan}", *self.story, *self._tell_state()]))
                for job in self._jobs:
                    job.driver.close()
                raise

    def _note(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._began_s:5.1f} s  {what}")

    def _tell_state(self) -> list[str]:
        """How queries and group stand."""
        said = [f"{job.name}: {job.driver.ask('state') if job.driver.is_running else 'gone'}" for job in self._jobs]
        try:
            said += [f"group: {self._admin.describe_group(self._name)}"]
            said += [f"offset: {row}" for row in self._admin.group_offsets(self._name)]
            said += [f"history: {event}" for event in self._admin.group_history(self._name).events[-40:]]
        except kohort.KohortError as why:
            said.append(f"group: {why}")
        return said

    def _play(self) -> None:
        self._set_up()
        one, two = self._jobs
        self._start(two)
        if not self.plan.is_at_once:
            self._settle("the first query reads all")
        self._start(one)
        self._settle("two share")
        # Spark refuses the checkpoint of a query that was stopped while it wrote the first line of its first log.
        self._add()
        self._until(lambda: one.finished() and two.finished(), what="both have finished a batch")
        # What a deleted topic has is nobody's to read.
        self._settle("both have read")
        for event in self.plan.events:
            victim = self._chance.choice(self._jobs)
            self._note(f"{event} ({victim.name})")
            EVENTS[event](self, victim)
            self._add()
            self._settle(event)
        self._note(self.plan.ends_by)
        if self.plan.ends_by == "drain":
            self._drain(one)
        else:
            self._lose(one)
        self._add()
        self._settle("one has ended")
        self._drain(two)
        ends = Counter(partition for topic, partition, _ in self._sent if topic == self._topics)
        found = {row.partition: row.committed for row in self._admin.group_offsets(self._name)}
        assert found == dict(ends), "the group stands where its queries have ended"

    def _set_up(self) -> None:
        session_ms = LONG_SESSION_MS if self.plan.is_patient else SHORT_SESSION_MS
        if self.plan.protocol == "consumer":
            self._admin.alter_group_configs(self._name, {"consumer.session.timeout.ms": session_ms})
        self._options = {
            "kafka.bootstrap.servers": self._broker.address,
            "kafka.group.id": self._name,
            "kafka.group.protocol": self.plan.protocol,
            "subscribe": self._name,
            "startingOffsets": "earliest",
        }
        if self.plan.protocol == "classic":
            self._options["kafka.session.timeout.ms"] = str(session_ms)
            self._options["kafka.heartbeat.interval.ms"] = "300"
        self._make_topic()
        self._add()

    # -- what can be done ---------------------------------------------------------------------------------------------

    def _make_topic(self) -> None:
        self._topics += 1
        self._partitions = PARTITIONS
        self._admin.create_topic(self._name, self._partitions)

    def _add(self) -> None:
        """Records whose values are their numbers, spread over all partitions."""
        first = len(self._sent)
        with kohort.Producer(bootstrap_servers=self._broker.address) as producer:
            futures = {
                number: producer.send(self._name, b"%d" % number, partition=number % self._partitions)
                for number in range(first, first + RECORDS)
            }
            for number, future in futures.items():
                sent = future.result(PATIENCE_S)
                self._sent[self._topics, sent.partition, sent.offset] = number

    def _start(self, job: Job, trigger: str = _OFTEN) -> None:
        options = dict(self._options)
        if self.plan.told_by == "location":
            options["checkpointLocation"] = f"{self._folder}/{job.name}-checkpoint"
        listens = self.plan.told_by == "listener"
        job.driver.ask(
            "start", options=options, folder=str(self._folder), name=job.name, trigger=trigger, listens=listens
        )
        self._running.add(job.name)
        self._note(f"  {job.name} is started")

    def _end(self, job: Job, how: Callable[[], object], *, is_clean: bool = False) -> None:
        """Whatever the batch in doubt has planned may be read twice, unless the group waits for the query."""
        how()
        self._running.discard(job.name)
        self._note(f"  {job.name} has ended")
        if not self.plan.is_patient and not is_clean:
            planned = job.planned().items()
            places = [(self._topics, partition, offset) for partition, offsets in planned for offset in offsets]
            self._doubted |= {self._sent[place] for place in places if place in self._sent}

    def _drain(self, job: Job) -> None:
        self._end(job, lambda: job.driver.ask("drain"), is_clean=True)

    def _settle(self, what: str) -> None:
        """Return when all is read and both have partitions; it is read once."""
        everything = set(self._sent.values())
        self._until(lambda: everything <= self._read().keys(), what=f"{what}: all is read")
        self._until(self._is_shared, what=f"{what}: each has a share")
        read = self._read()
        doubled = {value for value, count in read.items() if count > 1} - self._doubted
        assert not doubled, f"{what}: doubled are {self._tell(doubled)}"
        assert read.keys() == everything
        self._note(f"  {what}: settled")

    def _tell(self, values: set[int]) -> list[tuple[int, int, int]]:
        return sorted(place for place, value in self._sent.items() if value in values)

    def _read(self) -> Counter[int]:
        return Counter(value for job in self._jobs for value in job.written())

    def _member_ids(self) -> set[str]:
        return {member.member_id for member in self._admin.describe_group(self._name).members}

    def _is_shared(self) -> bool:
        shares = [len(each.assignment) for each in self._admin.describe_group(self._name).members]
        return len(shares) == len(self._running) and min(shares) >= self._partitions // 2 // len(shares)

    def _until(self, happened: Callable[[], object], *, what: str) -> None:
        until(happened, what=what, step=lambda: _PAUSE.wait(0.05), seconds=PATIENCE_S)

    @contextmanager
    def _in_a_batch(self, job: Job) -> Iterator[None]:
        with job.held():
            before = job.begun()
            self._add()
            self._until(lambda: job.begun() > before, what=f"{job.name} begins a batch")
            yield

    @contextmanager
    def _perhaps_in_a_batch(self, job: Job) -> Iterator[None]:
        if self._chance.random() < 0.6:
            self._note("  in a batch")
            with self._in_a_batch(job):
                yield
        else:
            yield

    # -- what can happen ----------------------------------------------------------------------------------------------

    def _stop_between_triggers(self, job: Job) -> None:
        """Nobody has told the reader that the batch is finished, when no other one follows."""
        before = self._member_ids()
        self._end(job, lambda: job.driver.ask("stop"))
        self._start(job, _SELDOM)
        # The one that has left may be a member still, and the other query read all that comes meanwhile.
        self._until(lambda: self._member_ids() - before, what=f"{job.name} is a member again")
        self._settle("a query with rare triggers")
        finished = job.finished()
        self._add()
        self._until(lambda: job.finished() > finished, what=f"{job.name} finishes a batch")
        self._end(job, lambda: job.driver.ask("stop"))
        self._start(job)

    def _stop(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._end(job, lambda: job.driver.ask("stop"))
        self._start(job)

    def _drain_and_return(self, job: Job) -> None:
        self._drain(job)
        self._add()
        self._settle("the other one reads on")
        self._start(job)

    def _kill_reader(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._end(job, job.driver.kill_reader)
        self._until(job.has_ended, what="the query notices")
        self._start(job)

    def _kill_java(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._end(job, job.driver.kill_java)
        self._start(job)

    def _kill_all(self, job: Job) -> None:
        self._lose(job)
        self._start(job)

    def _lose(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._end(job, job.driver.kill_all)

    def _terminate(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._end(job, job.driver.terminate)
        self._start(job)

    def _lose_broker(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._broker.kill()
            try:
                _PAUSE.wait(self._chance.choice((1.0, AWAY_S)))
            finally:
                self._broker.revive()

    def _grow(self, job: Job) -> None:
        with self._perhaps_in_a_batch(job):
            self._partitions += 2
            self._admin.create_partitions(self._name, self._partitions)
            self._add()

    def _make_anew(self, job: Job) -> None:
        """Both queries end, and go on with the new topic only if they are told that they may."""
        self._admin.delete_topics([self._name])
        for each in self._jobs:
            self._until(each.has_ended, what="a query without a topic ends")
        self._make_topic()
        self._options["failOnDataLoss"] = "false"
        for each in self._jobs:
            self._start(each)


EVENTS: Final[dict[str, Callable[[Round, Job], None]]] = {
    "stop between triggers": Round._stop_between_triggers,
    "stop": Round._stop,
    "drain": Round._drain_and_return,
    "kill the reader": Round._kill_reader,
    "kill Java": Round._kill_java,
    "kill all": Round._kill_all,
    "terminate the driver": Round._terminate,
    "broker away": Round._lose_broker,
    "topic grown": Round._grow,
    "topic made anew": Round._make_anew,
}

"""Members of one group, ours and others', in threads and in processes, and the ledger of what they did together.

`main` is one member in a process of its own, which can be stopped and killed; it prints what it does as JSON lines and
ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, Protocol, Self

from kohort import Consumer, TopicPartition
from kohort.errors import FencedError
from support.peers.cli import forks_of
from support.waiting import PATIENCE_SECONDS


class Ledger:
    """What the members of a group have processed, gained and given up, in the order in which they said so."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: partition -> (offset, member), in the order of processing.
        self.processed: dict[TopicPartition, list[tuple[int, str]]] = {}
        #: member -> what it holds by its callbacks.
        self.owned: dict[str, set[TopicPartition]] = {}
        #: (member, "assigned" | "revoked" | "lost", partitions).
        self.callbacks: list[tuple[str, str, list[TopicPartition]]] = []
        self._failure: BaseException | None = None

    def note_processed(self, member: str, records: Iterable[tuple[str, int, int]]) -> None:
        """`records`: (topic, partition, offset)."""
        with self._changed:
            for topic, partition, offset in records:
                self.processed.setdefault(TopicPartition(topic, partition), []).append((offset, member))
            self._changed.notify_all()

    def note_callback(self, member: str, kind: str, partitions: Iterable[TopicPartition]) -> None:
        """A rebalance callback of a member has been called."""
        with self._changed:
            listed = sorted(partitions)
            self.callbacks.append((member, kind, listed))
            held = self.owned.setdefault(member, set())
            if kind == "assigned":
                held.update(listed)
            else:
                held.difference_update(listed)
            self._changed.notify_all()

    def note_end(self, member: str, failure: BaseException | None = None) -> None:
        """A member is gone; it holds nothing any more."""
        with self._changed:
            self.owned.pop(member, None)
            self._failure = self._failure or failure
            self._changed.notify_all()

    def wait_until(self, test: Callable[[], bool], what: str) -> None:
        """Wait for the members to bring something about; a failure of any member is raised here."""
        with self._changed:
            is_true = self._changed.wait_for(lambda: self._failure is not None or test(), PATIENCE_SECONDS)
            if self._failure is not None:
                raise AssertionError(f"a member failed while waiting for {what}") from self._failure
            assert is_true, f"not within {PATIENCE_SECONDS:g} s: {what}; owned {self.owned}, done {self.counts()}"

    def wait_for_shares(self, *members: str, partitions: int) -> None:
        """Wait until exactly these members hold every partition, each as many as another or one more."""

        def is_shared() -> bool:
            held = {member: owned for member, owned in self.owned.items() if owned}
            sizes = [len(owned) for owned in held.values()]
            everything = set().union(*held.values())
            is_whole = len(everything) == sum(sizes) == partitions
            return set(held) == set(members) and is_whole and max(sizes) - min(sizes) <= 1

        self.wait_until(is_shared, f"{', '.join(members)} share {partitions} partitions")

    def wait_for_records(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until every offset below each partition's end was processed."""

        def is_processed() -> bool:
            return all(
                len({offset for offset, _ in self.processed.get(partition, ())}) == end
                for partition, end in ends.items()
            )

        self.wait_until(is_processed, f"everything up to {dict(ends)} is processed")

    def held(self, member: str) -> set[TopicPartition]:
        """What a member holds by its callbacks."""
        with self._changed:
            return set(self.owned.get(member, ()))

    def counts(self) -> dict[TopicPartition, int]:
        """How many records of each partition were processed, repetitions included."""
        return {partition: len(done) for partition, done in self.processed.items()}

    def repeated(self) -> dict[TopicPartition, list[int]]:
        """The offsets that were processed more than once or out of order, by partition."""
        found: dict[TopicPartition, list[int]] = {}
        for partition, done in self.processed.items():
            latest = -1
            for offset, _ in done:
                if offset <= latest:
                    found.setdefault(partition, []).append(offset)
                latest = max(latest, offset)
        return found

    def kinds(self, member: str) -> list[str]:
        """The callbacks of a member, by kind."""
        return [kind for name, kind, _ in self.callbacks if name == member]


class GroupMember(Protocol):
    """Somebody who reads a topic in a group."""

    name: str

    def leave(self) -> None:
        """Close the consumer and wait for that."""
        ...


class ThreadMember:
    """A member on a thread of its own, until `leave`; `_read` is what it does."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self.name = name
        self._ledger = ledger
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"member-{name}", daemon=True)

    def start(self) -> Self:
        """Begin to read."""
        self._thread.start()
        return self

    def leave(self) -> None:
        """Close the consumer and wait for that."""
        self._is_leaving.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), f"member {self.name} does not end"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _main(self) -> None:
        failure: BaseException | None = None
        try:
            self._read()
        except BaseException as why:  # raised where the ledger is read
            failure = why
        self._ledger.note_end(self.name, failure)

    def _read(self) -> None:
        raise NotImplementedError


class KohortMember(ThreadMember):
    """Our consumer: polls, notes, commits. `topic`: one, or several; `may_be_fenced` as in `read_as_member`."""

    def __init__(
        self, ledger: Ledger, name: str, *, topic: str | Sequence[str], may_be_fenced: bool = False, **options: Any
    ) -> None:
        super().__init__(ledger, name)
        self._topic = topic
        self._options = options
        self._may_be_fenced = may_be_fenced

    def _read(self) -> None:
        read_as_member(
            self._topic,
            self._options,
            is_leaving=self._is_leaving.is_set,
            note_processed=lambda records: self._ledger.note_processed(self.name, records),
            note_callback=lambda kind, partitions: self._ledger.note_callback(self.name, kind, partitions),
            may_be_fenced=self._may_be_fenced,
        )


class ConfluentMember(ThreadMember):
    """confluent-kafka's consumer; `config` by its own names."""

    def __init__(self, ledger: Ledger, name: str, *, topic: str, **config: Any) -> None:
        super().__init__(ledger, name)
        self._topic = topic
        self._config = {
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in config.items()},
        }

    def _read(self) -> None:
        import confluent_kafka

        def note(kind: str) -> Callable[[object, Sequence[Any]], None]:
            return lambda _, rows: self._ledger.note_callback(
                self.name, kind, [TopicPartition(row.topic, row.partition) for row in rows]
            )

        def revoked(of: object, rows: Sequence[Any]) -> None:
            # Where the commit behind the records has lost a race with the rebalance.
            self._commit(of)
            note("revoked")(of, rows)

        consumer = confluent_kafka.Consumer(self._config)
        try:
            consumer.subscribe([self._topic], on_assign=note("assigned"), on_revoke=revoked, on_lost=note("lost"))
            while not self._is_leaving.is_set():
                records: list[Any] = consumer.consume(500, timeout=0.1)
                for record in records:
                    assert record.error() is None, record.error()
                if records:
                    self._ledger.note_processed(
                        self.name, [(record.topic(), record.partition(), record.offset()) for record in records]
                    )
                    self._commit(consumer)
        finally:
            consumer.close()

    @staticmethod
    def _commit(consumer: Any) -> None:
        """A commit that loses a race with a rebalance is lost: the revocation commits again."""
        import confluent_kafka

        try:
            consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as why:
            if why.args[0].name() not in ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "_NO_OFFSET"):
                raise


class ProcessMember:
    """Our consumer in a process of its own: it can be stopped, and killed."""

    def __init__(self, ledger: Ledger, name: str, *, topic: str, **options: Any) -> None:
        self.name = name
        self._ledger = ledger
        whole = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = forks_of(whole, __name__).open(
            [topic, json.dumps(options)],
            environment=whole,
            script=f"from {__name__} import main\nmain()",
            has_input=True,
            errors=2,
        )
        self._reader = threading.Thread(target=self._listen, name=f"member-{name}", daemon=True)
        self._reader.start()

    def pause(self) -> None:
        """Stop it (SIGSTOP): it keeps its connections and says nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused one go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        self._process.kill()
        self._end()

    def leave(self) -> None:
        """Let it close its consumer, and wait for that."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.resume()
            self.leave()

    def _end(self) -> None:
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # The kill cut it off.
            said = json.loads(line)
            if said["what"] == "processed":
                self._ledger.note_processed(self.name, [tuple(record) for record in said["records"]])
            else:
                partitions = [TopicPartition(topic, number) for topic, number in said["partitions"]]
                self._ledger.note_callback(self.name, said["what"], partitions)
        code = self._process.wait()
        # Below 0: it was killed.
        self._ledger.note_end(self.name, RuntimeError(f"its process has ended with {code}") if code > 0 else None)


def read_as_member(
    topic: str | Sequence[str],
    options: Mapping[str, Any],
    *,
    is_leaving: Callable[[], bool],
    note_processed: Callable[[list[tuple[str, int, int]]], None],
    note_callback: Callable[[str, list[TopicPartition]], None],
    may_be_fenced: bool = False,
) -> None:
    """Read until told to leave; what is noted is noted before its commit, so a commit never hides a record.

    Args:
        may_be_fenced: a commit may be refused because the group has given the partitions to others.
    """
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    with Consumer(**settings) as consumer:
        consumer.subscribe(
            topic,
            on_assigned=lambda _, gained: note_callback("assigned", gained),
            on_revoked=lambda _, given: note_callback("revoked", given),
            on_lost=lambda _, lost: note_callback("lost", lost),
        )
        while not is_leaving():
            records = consumer.poll(0.1)
            if records:
                note_processed([(record.topic, record.partition, record.offset) for record in records])
                with suppress(FencedError) if may_be_fenced else nullcontext():
                    consumer.commit()


def _say(what: str, **facts: object) -> None:
    sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """One member, until standard input ends."""
    topic, options = sys.argv[1], json.loads(sys.argv[2])
    is_over = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    read_as_member(
        topic,
        options,
        is_leaving=is_over.is_set,
        note_processed=lambda records: _say("processed", records=records),
        note_callback=lambda kind, partitions: _say(kind, partitions=partitions),
        may_be_fenced=True,
    )

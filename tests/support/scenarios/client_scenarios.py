"""What our client must do against any broker: each scenario takes an address and makes topics and groups of its own.

The same scenarios run against our broker and against Apache Kafka; `BROKER_CONFIG` makes either quick enough for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from time import monotonic
from typing import Any, Final

import pytest

from kohort import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from kohort.errors import BrokerError, ErrorCode, FencedError
from support.peers.group_members import ConfluentMember, KohortMember, Ledger, ProcessMember
from support.peers.lossy_proxy import LossyProxy
from support.waiting import PATIENCE_SECONDS, until

#: Kafka's names; both brokers know them.
BROKER_CONFIG: Final[dict[str, object]] = {
    "auto.create.topics.enable": "true",
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.heartbeat.interval.ms": 150,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 3000,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 4,
}
PROTOCOLS: Final = ("consumer", "classic")
#: The same, and the classic protocol with members that keep what does not move.
MODES: Final = (*PROTOCOLS, "cooperative")
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Longer than anything in a test takes.
LONG_SESSION_MS: Final = 45_000
_NUMBERS = count(1)


def fresh(name: str) -> str:
    """A name that no other scenario of this run uses."""
    return f"{name}-{next(_NUMBERS)}"


def group_options(bootstrap: str, group: str, protocol: str) -> dict[str, Any]:
    """Options of our consumer that make its group quick."""
    options: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group}
    if protocol == "consumer":
        return options | {"group_protocol": protocol}
    options |= {"group_protocol": "classic", "session_timeout_ms": 3000, "heartbeat_interval_ms": 150}
    return options | ({"partition_assignment_strategy": "cooperative-sticky"} if protocol == "cooperative" else {})


def patient_options(bootstrap: str, group: str, protocol: str) -> dict[str, Any]:
    """The same for a group of which nobody shall be thrown out, however busy the machine is."""
    options = group_options(bootstrap, group, protocol)
    if protocol != "consumer":
        return options | {"session_timeout_ms": LONG_SESSION_MS}
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_group_configs(group, {"consumer.session.timeout.ms": str(LONG_SESSION_MS)})
    return options


def confluent_options(bootstrap: str, group: str, protocol: str) -> dict[str, Any]:
    """The same for confluent-kafka's consumer."""
    options = patient_options(bootstrap, group, protocol)
    return options | ({"partition_assignment_strategy": "range"} if protocol == "classic" else {})


@contextmanager
def new_topic(bootstrap: str, name: str, partitions: int = 1) -> Iterator[str]:
    """A topic for one scenario."""
    topic = fresh(name)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, partitions)
        wait_until(lambda: is_listed(admin, topic), f"{topic} is known")
    yield topic


def is_listed(admin: Admin, topic: str) -> bool:
    """Whether the broker knows a topic: an Apache Kafka hears a moment after its controller of what comes and goes."""
    return topic in [each.name for each in admin.list_topics()]


def partitions_of(topic: str, number: int) -> list[TopicPartition]:
    """The first `number` partitions."""
    return [TopicPartition(topic, partition) for partition in range(number)]


def send_values(bootstrap: str, topic: str, values: Sequence[bytes], *, partition: int = 0, **options: Any) -> None:
    """Send with our producer; every record is acknowledged when this returns."""
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        sent = [producer.send(topic, value, partition=partition) for value in values]
    for each in sent:
        each.result(0)


def poll_until(consumer: Consumer, number: int) -> list[ConsumerRecord]:
    """Poll until so many records have come; more is an error."""
    records: list[ConsumerRecord] = []
    deadline = monotonic() + PATIENCE_SECONDS
    while len(records) < number and monotonic() < deadline:
        records += consumer.poll(0.5)
    assert len(records) == number, f"{len(records)} records came instead of {number}"
    return records


def wait_until(test: Callable[[], bool], what: str, consumer: Consumer | None = None) -> None:
    """Ask again and again; a consumer is polled meanwhile and must get nothing."""

    def poll() -> None:
        if consumer is not None:
            assert consumer.poll(0.05) == []

    until(test, what=what, step=poll, seconds=PATIENCE_SECONDS)


class Load:
    """Records for every partition of a topic, and how many there are by now."""

    def __init__(self, producer: Producer, topic: str, partitions: int) -> None:
        self._producer = producer
        self.ends = dict.fromkeys(partitions_of(topic, partitions), 0)

    def send(self, records: int) -> None:
        """So many more for each partition, without waiting for them."""
        for partition, end in self.ends.items():
            for number in range(end, end + records):
                self._producer.send(partition.topic, str(number), partition=partition.partition)
            self.ends[partition] = end + records


# -- groups -----------------------------------------------------------------------------------------------------------


def members_join_leave_and_vanish(bootstrap: str, protocol: str) -> None:
    """Each record is processed, whoever comes and goes; only a member that vanishes leaves records to be repeated."""
    group, ledger = fresh("shared"), Ledger()
    options = group_options(bootstrap, group, protocol)
    with (
        new_topic(bootstrap, "shared", 6) as topic,
        ExitStack() as stack,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        load = Load(producer, topic, 6)
        load.send(20)
        leaver = KohortMember(ledger, "c", topic=topic, **options).start()
        stack.callback(leaver.leave)
        for name in ("a", "b"):
            stack.enter_context(KohortMember(ledger, name, topic=topic, **options))
        ledger.wait_for_shares("a", "b", "c", partitions=6)
        load.send(20)
        ledger.wait_for_records(load.ends)

        late = stack.enter_context(ProcessMember(ledger, "d", topic=topic, **options))
        load.send(20)
        ledger.wait_for_shares("a", "b", "c", "d", partitions=6)
        load.send(20)
        leaver.leave()
        ledger.wait_for_shares("a", "b", "d", partitions=6)
        load.send(20)
        ledger.wait_for_records(load.ends)
        assert ledger.repeated() == {}, "nobody has vanished yet"

        at_risk = set(ledger.owned["d"])
        late.pause()
        load.send(20)
        ledger.wait_until(lambda: _others_have(ledger, at_risk, load), "the partitions of a silent member move")
        late.resume()
        ledger.wait_until(lambda: "lost" in ledger.kinds("d"), "a fenced member hears that its partitions are lost")
        ledger.wait_for_shares("a", "b", "d", partitions=6)
        at_risk |= ledger.owned["d"]
        late.kill()
        load.send(20)
        ledger.wait_for_shares("a", "b", partitions=6)
        ledger.wait_for_records(load.ends)
        assert set(ledger.repeated()) <= at_risk
        with Consumer(**options) as reader:
            until(lambda: reader.committed(load.ends) == load.ends, what="everything is committed")


def _others_have(ledger: Ledger, partitions: set[TopicPartition], load: Load) -> bool:
    held = set().union(*(owned for member, owned in ledger.owned.items() if member != "d"))
    return partitions <= held and all(
        any(offset == load.ends[each] - 1 and member != "d" for offset, member in ledger.processed[each])
        for each in partitions
    )


def cut_off_member_lets_go(proxy: LossyProxy, protocol: str) -> None:
    """What a member says of its membership is lost, and nothing else: it reads nothing beside the next owner."""
    bootstrap, group = f"127.0.0.1:{proxy.port}", fresh("torn")
    options = group_options(bootstrap, group, protocol) | {"session_timeout_ms": 3000, "auto_offset_reset": "earliest"}
    owner: dict[TopicPartition, Consumer] = {}
    lost: list[TopicPartition] = []

    def take(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        owner.update(dict.fromkeys(partitions, consumer))

    with (
        new_topic(bootstrap, "torn", 2) as topic,
        Producer(bootstrap_servers=bootstrap) as producer,
        Consumer(**options, client_id=group) as former,
        Consumer(**options) as heir,
    ):
        load = Load(producer, topic, 2)

        def read() -> None:
            load.send(1)
            for consumer in (former, heir):
                for record in consumer.poll(0.02):
                    assert owner[TopicPartition(record.topic, record.partition)] is consumer

        def are_shared() -> bool:
            read()
            return len(set(owner.values())) == 2

        def are_heirs() -> bool:
            read()
            return set(owner.values()) == {heir}

        former.subscribe([topic], on_assigned=take, on_lost=lambda _, partitions: lost.extend(partitions))
        heir.subscribe([topic], on_assigned=take)
        until(are_shared, what="both have a share")
        proxy.unheard.add(group)
        until(are_heirs, what="the other has all of it")
        for _ in range(20):
            read()
        assert len(lost) == 1
        proxy.restore()
        until(are_shared, what="both have a share again")


def mixed_members_share(bootstrap: str, ours: str, theirs: str) -> None:
    """Members of ours and of confluent-kafka share a topic, each with its protocol."""
    group, ledger = fresh("mixed"), Ledger()
    own, foreign = patient_options(bootstrap, group, ours), confluent_options(bootstrap, group, theirs)
    with (
        new_topic(bootstrap, "mixed", 6) as topic,
        ExitStack() as stack,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        load = Load(producer, topic, 6)
        load.send(10)
        first = ConfluentMember(ledger, "their-a", topic=topic, **foreign).start()
        stack.callback(first.leave)
        ledger.wait_for_shares("their-a", partitions=6)
        stack.enter_context(KohortMember(ledger, "our-a", topic=topic, **own))
        ledger.wait_for_shares("their-a", "our-a", partitions=6)
        load.send(10)
        stack.enter_context(ConfluentMember(ledger, "their-b", topic=topic, **foreign))
        ledger.wait_for_shares("their-a", "our-a", "their-b", partitions=6)
        load.send(10)
        first.leave()
        ledger.wait_for_shares("our-a", "their-b", partitions=6)
        load.send(10)
        ledger.wait_for_records(load.ends)
        assert ledger.repeated() == {}
        with Consumer(**own) as reader:
            until(lambda: reader.committed(load.ends) == load.ends, what="everything is committed")


def callbacks_follow_the_assignment(bootstrap: str, protocol: str) -> None:
    """Assigned before the first record, revoked when others need partitions and on close, each with what moves."""
    options = {**group_options(bootstrap, fresh("told"), protocol), "auto_offset_reset": "earliest"}
    told: list[tuple[str, list[TopicPartition], set[TopicPartition]]] = []

    def note(kind: str) -> Callable[[Consumer, list[TopicPartition]], None]:
        return lambda consumer, partitions: told.append((kind, partitions, consumer.assignment()))

    with new_topic(bootstrap, "told", 2) as topic, Consumer(**options) as consumer:
        both = partitions_of(topic, 2)
        consumer.subscribe([topic], on_assigned=note("assigned"), on_revoked=note("revoked"), on_lost=note("lost"))
        wait_until(lambda: bool(told), "an assignment", consumer)
        assert told == [("assigned", both, set(both))]
        assert consumer.group_epoch > 0
        assert consumer.member_id
        ledger = Ledger()
        with KohortMember(ledger, "other", topic=topic, **options):
            wait_until(lambda: len(ledger.owned.get("other", ())) == 1, "the other gets its share", consumer)
            wait_until(lambda: len(consumer.assignment()) == 1, "we keep ours", consumer)
            assert consumer.assignment() | ledger.owned["other"] == set(both)
        wait_until(lambda: len(consumer.assignment()) == 2, "the other's share comes back", consumer)
        assert told[1][0] == "revoked"
        assert len(told[1][1]) == (2 if protocol == "classic" else 1), "eager members give up everything"
        assert "lost" not in [kind for kind, _, _ in told]
        consumer.close()
        assert told[-1][:2] == ("revoked", both)


def slow_application_is_left_behind(bootstrap: str, protocol: str) -> None:
    """max.poll.interval.ms: who does not poll loses its partitions to others, hears of it, and joins again."""
    options = group_options(bootstrap, fresh("slow"), protocol)
    lost: list[list[TopicPartition]] = []
    ledger = Ledger()
    with (
        new_topic(bootstrap, "slow", 2) as topic,
        Consumer(**options, max_poll_interval_ms=1500) as consumer,
    ):
        consumer.subscribe([topic], on_lost=lambda _, partitions: lost.append(partitions))
        wait_until(lambda: len(consumer.assignment()) == 2, "an assignment", consumer)
        with KohortMember(ledger, "quick", topic=topic, **options):
            wait_until(lambda: len(consumer.assignment()) == 1, "half of it", consumer)
            ledger.wait_for_shares("quick", partitions=2)
            held = sorted(consumer.assignment())
            with pytest.raises(FencedError, match=r"no poll for 1500 ms \(max\.poll\.interval\.ms\)") as why:
                consumer.commit({held[0]: 0})
            assert why.value.member and why.value.epoch > 0
            wait_until(lambda: bool(lost), "on_lost in the next poll", consumer)
            assert lost == [held]
            wait_until(lambda: len(consumer.assignment()) == 1, "a share again", consumer)


def record_in_work_is_read_again(bootstrap: str, protocol: str) -> None:
    """`finally: consumer.close()` while an exception passes: the 88th of 100 records is not committed."""
    options = {**group_options(bootstrap, fresh("interrupted"), protocol), "auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "interrupted") as topic:
        send_values(bootstrap, topic, [b"%d" % number for number in range(100)])

        def work() -> None:
            consumer = Consumer(**options)
            try:
                consumer.subscribe([topic])
                for record in consumer:
                    if record.offset == 87:
                        raise KeyboardInterrupt
            finally:
                consumer.close()

        with pytest.raises(KeyboardInterrupt):
            work()
        with Consumer(**options) as successor:
            assert list(successor.committed(partitions_of(topic, 1)).values()) == [87]
            successor.subscribe([topic])
            assert [record.offset for record in poll_until(successor, 13)] == list(range(87, 100))


def groups_outlive_their_coordinator(bootstrap: str, restart: Callable[[], None]) -> None:
    """The broker goes and comes back with its data: members go on where they were, and no record is lost or doubled."""
    ledgers = {protocol: Ledger() for protocol in PROTOCOLS}
    with (
        new_topic(bootstrap, "outlive", 2) as topic,
        ExitStack() as stack,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        load = Load(producer, topic, 2)
        load.send(20)
        groups = {protocol: fresh(f"outlive-{protocol}") for protocol in PROTOCOLS}
        for protocol, ledger in ledgers.items():
            member = KohortMember(
                ledger,
                "only",
                topic=topic,
                bootstrap_servers=bootstrap,
                group_id=groups[protocol],
                group_protocol=protocol,
            )
            stack.enter_context(member)
            ledger.wait_for_records(load.ends)
        load.send(20)
        restart()
        load.send(20)
        for ledger in ledgers.values():
            ledger.wait_for_records(load.ends)
            assert ledger.repeated() == {}
            assert ledger.kinds("only") == ["assigned"], "nobody has lost anything"
    for protocol, group in groups.items():
        with Consumer(**group_options(bootstrap, group, protocol)) as reader:
            until(lambda: reader.committed(load.ends) == load.ends, what="everything is committed")


# -- offsets ----------------------------------------------------------------------------------------------------------


def offsets_are_committed_and_sought(bootstrap: str, protocol: str) -> None:
    """commit, committed, position and seek agree with one another, and a later member goes on where they say."""
    options = {
        **group_options(bootstrap, fresh("offsets"), protocol),
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }
    with new_topic(bootstrap, "offsets", 2) as topic:
        first, second = partitions_of(topic, 2)
        send_values(bootstrap, topic, [b"%d" % number for number in range(10)])
        send_values(bootstrap, topic, [b"%d" % number for number in range(5)], partition=1)
        with Consumer(**options) as consumer:
            consumer.subscribe([topic])
            records = poll_until(consumer, 15)
            assert [record.value for record in records if record.partition == 0] == [b"%d" % n for n in range(10)]
            assert (consumer.position(first), consumer.position(second)) == (10, 5)
            assert consumer.committed([first, second]) == {first: None, second: None}
            consumer.commit({first: 4})
            assert consumer.committed([first, second]) == {first: 4, second: None}
            consumer.seek(first, 7)
            assert consumer.position(first) == 7
            assert [record.offset for record in poll_until(consumer, 3)] == [7, 8, 9]
            consumer.commit()
            assert consumer.committed([first, second]) == {first: 10, second: 5}
            consumer.commit({first: 8})
        with Consumer(**options) as later:
            later.subscribe([topic])
            assert [(record.partition, record.offset) for record in poll_until(later, 2)] == [(0, 8), (0, 9)]
            assert later.poll(0.0) == []
            assert later.position(second) == 5
            assert later.beginning_offsets([first]) == {first: 0}
            assert later.end_offsets([first, second]) == {first: 10, second: 5}
            assert later.partitions_for(topic) == [0, 1]


def progress_is_committed_by_itself(bootstrap: str, protocol: str) -> None:
    """enable.auto.commit: what was processed before close is not read again."""
    options = {**group_options(bootstrap, fresh("auto"), protocol), "auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "auto") as topic:
        send_values(bootstrap, topic, [b"one", b"two"])
        with Consumer(**options) as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, 2)
        send_values(bootstrap, topic, [b"three"])
        with Consumer(**options) as consumer:
            consumer.subscribe([topic])
            assert [record.value for record in poll_until(consumer, 1)] == [b"three"]


def partitions_are_assigned_by_hand(bootstrap: str) -> None:
    """assign reads without membership, keeps what stays assigned where it is, and commits for a group if it has one."""
    with new_topic(bootstrap, "hand", 2) as topic:
        first, second = partitions_of(topic, 2)
        send_values(bootstrap, topic, [b"a", b"b"])
        send_values(bootstrap, topic, [b"c"], partition=1)
        options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        with Consumer(**options) as consumer:
            consumer.assign([first])
            assert [record.value for record in poll_until(consumer, 2)] == [b"a", b"b"]
            consumer.assign([first, second])
            assert [record.value for record in poll_until(consumer, 1)] == [b"c"]
            assert consumer.assignment() == {first, second}
            assert consumer.group_epoch == -1
        with Consumer(**options, group_id=fresh("hand")) as consumer:
            consumer.assign([first])
            poll_until(consumer, 2)
            consumer.commit()
            assert consumer.committed([first, second]) == {first: 2, second: None}


def reset_decides_where_to_start(bootstrap: str) -> None:
    """auto.offset.reset: earliest, latest, none; and the same for an offset that does not exist."""
    with new_topic(bootstrap, "reset") as topic:
        (partition,) = partitions_of(topic, 1)
        send_values(bootstrap, topic, [b"old"])

        def consumer(reset: str) -> Consumer:
            return Consumer(bootstrap_servers=bootstrap, auto_offset_reset=reset, group_id=fresh("reset"))

        with consumer("earliest") as earliest, consumer("latest") as latest, consumer("none") as none:
            for each in (earliest, latest, none):
                each.assign([partition])
            assert latest.position(partition) == 1
            assert [record.value for record in poll_until(earliest, 1)] == [b"old"]
            with pytest.raises(BrokerError, match=r"auto\.offset\.reset is none") as refusal:
                wait_until(lambda: False, "an error", none)
            assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            none.seek(partition, 0)
            assert [record.value for record in poll_until(none, 1)] == [b"old"]
            send_values(bootstrap, topic, [b"new"])
            for each in (earliest, latest, none):
                assert [record.value for record in poll_until(each, 1)] == [b"new"]
                each.seek(partition, 100)
            assert [record.value for record in poll_until(earliest, 2)] == [b"old", b"new"]
            with pytest.raises(BrokerError, match=r"auto\.offset\.reset is none"):
                wait_until(lambda: False, "an error", none)
            wait_until(lambda: latest.position(partition) == 2, "latest goes to the end", latest)


def surprises_of_groups_are_said(bootstrap: str, protocol: str, lines: Callable[[], list[str]]) -> None:
    """A new group that starts behind what is there, and a member that stands by; `lines`: of the log so far."""
    with new_topic(bootstrap, "surprises") as topic:
        send_values(bootstrap, topic, [b"1", b"2", b"3"])
        options = group_options(bootstrap, fresh("surprised"), protocol)
        options.pop("auto_offset_reset", None)
        group = options["group_id"]
        expected = [
            f"group {group} starts at the end of the log; 3 older records are read with auto_offset_reset='earliest'"
        ]
        with Consumer(**options) as first, Consumer(**options) as second:
            first.subscribe([topic])
            wait_until(lambda: lines() == expected, "the line about older records", first)
            second.subscribe([topic])

            def both_polled() -> bool:
                first.poll(0.05)
                # Whoever got it now may have told of its start, too.
                said = lines()[1:]
                return f"no partition for this member of group {group}: 2 members share 1 partition" in said

            wait_until(both_polled, "the line about the missing partition", second)

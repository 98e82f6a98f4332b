"""The programs of docs/reference/migrate.md, before and after: both print what the text says and leave the same behind.

The blocks of a library are one program from top to bottom; each part of it is written for the library and for kohort.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import kohort
from support.builders.site import run_block
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "migrate.md"
#: Name in the document -> module.
LIBRARIES = {"confluent-kafka": "confluent_kafka", "kafka-python": "kafka", "aiokafka": "aiokafka"}

#: Every record with key, value and headers, and where every group stands.
LEFT_BEHIND = """
print("left behind")
with kohort.Admin(bootstrap_servers=address) as admin:
    for group in admin.list_groups():
        for row in admin.group_offsets(group.group_id):
            print(group.group_id, row.topic, row.partition, row.committed, row.lag)
with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as reader:
    partitions = [kohort.TopicPartition(topic, each) for topic, all in reader.list_topics().items() for each in all]
    reader.assign(partitions)
    for record in sorted(reader.consume(sum(reader.end_offsets(partitions).values()), timeout=10)):
        print(record.topic_partition, record.offset, record.key, record.value, record.headers)
"""


class Program(NamedTuple):
    """What a library's section shows."""

    before: str
    after: str
    shown: str


def section_of(heading: str) -> tuple[str, str]:
    """The first block of the document, and a section."""
    text = DOCUMENT.read_text()
    set_up = text.partition("```python\n")[2].partition("```")[0]
    return set_up, text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def program_of(library: str) -> tuple[str, Program]:
    """The first block, and the parts of a library's program put together."""
    set_up, section = section_of(f"From {library}")
    parts = re.findall(r"```python\n(.*?)```\n\n```python\n(.*?)```\n\n```text\n(.*?)```", section, re.DOTALL)
    assert len(parts) == 3, "topics, sending, reading"
    assert section.count("```") == 6 * len(parts), "each part is shown before and after, with what both print"
    return set_up, Program(*("\n".join(column) for column in zip(*parts, strict=True)))


@pytest.mark.parametrize(("library", "module"), LIBRARIES.items(), ids=list(LIBRARIES))
def test_program_does_the_same_before_and_after(library: str, module: str) -> None:
    pytest.importorskip(module, reason=f"{library} is not installed")
    set_up, program = program_of(library)
    assert "kohort" not in program.before
    assert module not in program.after

    # kafka-python reads its schemas in a way that Python 3.11 calls outdated.
    before = run_block(f"{set_up}\n{program.before}\n{LEFT_BEHIND}", warnings="default")
    after = run_block(f"{set_up}\n{program.after}\n{LEFT_BEHIND}")

    said, _, left = after.partition("left behind\n")
    assert said == program.shown.replace("\n\n", "\n")
    assert before == after
    assert "billing orders 1 " in left
    assert left.count("orders-") == 4, "every record"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
        yield broker.bootstrap_servers


class Heard:
    """What a member's callbacks were told: in which thread, and of how many partitions."""

    def __init__(self) -> None:
        self.calls: list[tuple[bool, int]] = []

    def note(self, partitions: Collection[object]) -> None:
        self.calls.append((threading.current_thread() is threading.main_thread(), len(partitions)))

    @property
    def has_gained(self) -> bool:
        return any(count for _, count in self.calls)


def test_listeners_of_kafka_python_are_called_in_the_background_and_without_partitions(address: str) -> None:
    """What the table of threads and callbacks says of it; ours are called in poll, and for partitions only."""
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    theirs, ours = Heard(), Heard()

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set[object]) -> None:
            theirs.note(assigned)

        def on_partitions_revoked(self, revoked: set[object]) -> None:
            theirs.note(revoked)

    consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id="theirs")
    try:
        # If it leads its group before it knows the partitions, it assigns nothing and leaves it at that.
        assert consumer.partitions_for_topic("orders") == {0}
        consumer.subscribe(["orders"], listener=Listener())
        until(lambda: theirs.has_gained, what="the assignment", step=lambda: consumer.poll(timeout_ms=100))
    finally:
        consumer.close()
    with kohort.Consumer(bootstrap_servers=address, group_id="ours") as consumer:
        consumer.subscribe(
            ["orders"], on_assigned=lambda _, each: ours.note(each), on_revoked=lambda _, each: ours.note(each)
        )
        until(lambda: ours.has_gained, what="the assignment", step=lambda: consumer.poll(0.1))

    assert {is_main for is_main, _ in theirs.calls} == {False}
    assert 0 in {count for _, count in theirs.calls}
    assert ours.calls == [(True, 1), (True, 1)]


def test_listener_of_aiokafka_is_called_by_itself_and_not_at_the_end(address: str) -> None:
    """Likewise: nobody reads, and stop tells it nothing."""
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    assigned, revoked = Heard(), Heard()

    async def run() -> None:
        gained = asyncio.Event()

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, each: set[object]) -> None:
                assigned.note(each)
                gained.set()

            async def on_partitions_revoked(self, each: set[object]) -> None:
                revoked.note(each)

        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=address, group_id="aio")
        consumer.subscribe(["orders"], listener=Listener())
        await consumer.start()
        try:
            await asyncio.wait_for(gained.wait(), PATIENCE_SECONDS)
        finally:
            await consumer.stop()

    asyncio.run(run())
    assert assigned.calls == [(True, 1)]
    assert revoked.calls == [(True, 0)]


def test_what_others_call_topics_and_resources_is_taken(address: str) -> None:
    """As the tables of calls say."""
    theirs = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")
    theirs_too = pytest.importorskip("confluent_kafka")
    others = pytest.importorskip("kafka.admin", reason="kafka-python is not installed")
    config = ["retention.ms"]
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send("orders", b"one").result(10)
    with kohort.Admin(bootstrap_servers=address) as admin:
        made = admin.create_topics([theirs.NewTopic("theirs", 2, 1), others.NewTopic("others", 3, 1)])
        assert [(topic.name, topic.partition_count) for topic in made] == [("theirs", 2), ("others", 3)]

        (ours,) = admin.describe_configs(("topic", "orders"), config).values()
        for resource in (
            theirs.ConfigResource(theirs.ResourceType.TOPIC, "orders"),
            others.ConfigResource(others.ConfigResourceType.TOPIC, "orders"),
        ):
            assert list(admin.describe_configs([resource], config).values()) == [ours]

        # None of them is what is asked without a word: the end.
        at = {theirs_too.TopicPartition("orders", 0): "earliest"}
        (begin,) = admin.list_offsets(at).values()
        assert begin.offset == 0
        with pytest.raises(TypeError, match="is no partition"):
            admin.list_offsets({"orders": "earliest"})

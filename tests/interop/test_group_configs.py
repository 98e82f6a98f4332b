"""Configs of groups through other people's clients: Kafka's own tool and librdkafka.

Source: Apache Kafka 4.3, `kafka-configs --entity-type groups`; confluent-kafka's AdminClient.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

import kohort
from support.peers.kafka_tools import run_kafka_tool
from support.peers.restarts import wait_until
from support.waiting import until

pytestmark = pytest.mark.interop

TOOL = "kafka.admin.ConfigCommand"
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker() as broker:
        yield broker


@pytest.mark.apache
def test_kafka_configs_alters_describes_and_deletes(broker: kohort.Broker) -> None:
    groups = ("--bootstrap-server", broker.bootstrap_servers, "--entity-type", "groups")
    named = (*groups, "--entity-name", "orders")
    said = run_kafka_tool(TOOL, *named, "--alter", "--add-config", f"{SESSION}=9000,{INTERVAL}=700")
    assert "Completed updating config for group orders." in said
    said = run_kafka_tool(TOOL, *named, "--describe")
    assert "Dynamic configs for group orders are:" in said
    assert f"{SESSION}=9000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:{SESSION}=9000" in said
    assert f"{INTERVAL}=700" in said and "group.assignor" not in said
    # Without a name the tool asks which groups have configs.
    assert "Dynamic configs for group orders are:" in run_kafka_tool(TOOL, *groups, "--describe")
    said = run_kafka_tool(TOOL, *named, "--describe", "--all")
    assert "group.disconnect.grace.ms=-1" in said

    with pytest.raises(RuntimeError, match="100 to 1800000 is expected"):
        run_kafka_tool(TOOL, *named, "--alter", "--add-config", f"{SESSION}=1")
    run_kafka_tool(TOOL, *named, "--alter", "--delete-config", f"{SESSION},{INTERVAL}")
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert not any(row.is_own for row in admin.describe_group_configs("orders"))


@pytest.mark.skipif(not hasattr(ResourceType, "GROUP"), reason="this confluent-kafka has no configs of groups")
def test_librdkafka_alters_and_describes(broker: kohort.Broker) -> None:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(INTERVAL, value, source=ConfigSource.GROUP_CONFIG, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, "billing", incremental_configs=[entry])
        (future,) = client.incremental_alter_configs([resource]).values()
        future.result(10)

    def described() -> ConfigEntry:
        (future,) = client.describe_configs([ConfigResource(ResourceType.GROUP, "billing")]).values()
        found: ConfigEntry = future.result(10)[INTERVAL]
        return found

    alter(AlterConfigOpType.SET, "800")
    assert (described().value, described().is_default) == ("800", False)
    with pytest.raises(confluent_kafka.KafkaException, match="50 to 600000"):
        alter(AlterConfigOpType.SET, "1")
    alter(AlterConfigOpType.DELETE, None)
    assert (described().value, described().is_default) == ("5000", True)


@pytest.mark.skipif(not hasattr(ResourceType, "GROUP"), reason="this confluent-kafka has no configs of groups")
def test_what_librdkafka_sets_counts_at_once_for_members_of_librdkafka() -> None:
    """A silent member has 45 s by the broker's settings; a session set meanwhile ends when that one says."""
    config = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.max.heartbeat.interval.ms": 200}
    with kohort.Broker(config=config) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2)
        common = {"bootstrap.servers": broker.bootstrap_servers}
        reader = {**common, "group.id": "billing", "group.protocol": "consumer"}
        script = "import sys, json, confluent_kafka as c; r = c.Consumer(json.loads(sys.argv[1])); r.subscribe(['t'])\n"
        silent = subprocess.Popen([sys.executable, "-c", f"{script}while True: r.poll(0.1)", json.dumps(reader)])
        try:
            wait_until(lambda: has_assigned(admin, "billing", 2), "the member to have everything")
            silent.send_signal(signal.SIGSTOP)
            entry = ConfigEntry(
                SESSION, "1500", source=ConfigSource.GROUP_CONFIG, incremental_operation=AlterConfigOpType.SET
            )
            resource = ConfigResource(ResourceType.GROUP, "billing", incremental_configs=[entry])
            client = AdminClient(common)
            (future,) = client.incremental_alter_configs([resource]).values()
            future.result(10)
            wait_until(lambda: admin.describe_group("billing").members == (), "the member to be fenced", seconds=20)
            silent.send_signal(signal.SIGCONT)
            # It hears that it was fenced, and joins again.
            wait_until(lambda: has_assigned(admin, "billing", 2), "the member to be back")
        finally:
            silent.kill()
            silent.wait(20)


def has_assigned(admin: kohort.Admin, group: str, partitions: int) -> bool:
    """Whether one member has them."""
    if not any(row.group_id == group for row in admin.list_groups()):
        return False
    return [len(row.assignment) for row in admin.describe_group(group).members] == [partitions]


def is_stable_with(admin: kohort.Admin, members: int) -> bool:
    described = admin.describe_group("g")
    return described.state == "Stable" and len(described.members) == members


def test_moves_are_limited_while_the_group_works() -> None:
    """`group.assignor.max.moves` (H2), of the broker and then of the group: what was held back moves at once."""
    quick = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 100}
    with kohort.Broker(config={**quick, "group.assignor.max.moves": 0}) as broker:
        address = broker.bootstrap_servers
        with (
            kohort.Admin(bootstrap_servers=address) as admin,
            kohort.Consumer(bootstrap_servers=address, group_id="g") as first,
            kohort.Consumer(bootstrap_servers=address, group_id="g") as second,
        ):
            admin.create_topic("t", 6)

            def loads() -> list[int]:
                first.poll(0.05)
                second.poll(0.05)
                return [len(first.assignment()), len(second.assignment())]

            def wait_for(expected: list[int]) -> None:
                until(lambda: loads() == expected, what=f"loads {expected}")

            first.subscribe(["t"])
            until(lambda: len(first.assignment()) == 6, what="the first has all", step=lambda: first.poll(0.05))
            second.subscribe(["t"])
            until(lambda: is_stable_with(admin, 2), what="the second member is there", step=loads)
            assert loads() == [6, 0]
            admin.alter_group_configs("g", {"group.assignor.max.moves": "1", "group.assignor.imbalance": "1"})
            wait_for([4, 2])
            admin.alter_group_configs("g", {"group.assignor.max.moves": "-1", "group.assignor.imbalance": None})
            wait_for([3, 3])


def test_stock_client_that_names_another_assignor_ends_with_a_sentence_about_it(broker: kohort.Broker) -> None:
    """`group.consumer.assignor.mismatch=refuse`: librdkafka says it in its own words, by the code; Java by ours."""
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "one-way", "group.protocol": "consumer"}
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("one-way", 2)
        admin.alter_group_configs("one-way", {"group.consumer.assignor.mismatch": "refuse"})
        first = confluent_kafka.Consumer({**config, "group.remote.assignor": "range"})
        other = confluent_kafka.Consumer({**config, "group.remote.assignor": "uniform"})
        first.subscribe(["one-way"])
        until(lambda: first.poll(0.1) is None and len(first.assignment()) == 2, what="the first has it all")
        other.subscribe(["one-way"])
        said = []
        until(lambda: (found := other.poll(0.1)) is not None and not said.append(found.error()), what="an error")
        assert "assignor or its version range is not supported by the consumer group" in said[0].str()
        assert len(admin.describe_group("one-way").members) == 1
        other.close()
        first.close()

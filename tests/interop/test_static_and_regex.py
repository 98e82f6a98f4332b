"""Static members and subscriptions by pattern of the new protocol, by an unmodified confluent-kafka (librdkafka)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from kohort import Admin
from kohort.broker.embedded import Broker
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from support.dialogues.raw_client import RawClient
from support.peers.confluent_member import Member, settle
from support.waiting import until

pytestmark = pytest.mark.interop

CONFIG = {"group.consumer.session.timeout.ms": 6_000, "group.consumer.heartbeat.interval.ms": 200}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(admin: AdminClient, **topics: int) -> None:
    """Topics with so many partitions; `_` in a name is said for `-`."""
    rows = [NewTopic(name.replace("_", "-"), count, 1) for name, count in topics.items()]
    for done in admin.create_topics(rows).values():
        done.result(20)


def static(broker: Broker, name: str) -> Member:
    return Member(broker, "consumer", **{"group.instance.id": name}).subscribe("t")


def group_epoch(broker: Broker) -> int | None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as kohort_admin:
        return kohort_admin.describe_group("g").group_epoch


def wait_for(member: Member, held: set[tuple[str, int]]) -> None:
    until(lambda: member.held == held, what=f"{held}, it holds {member.held}", step=member.poll)


def test_static_member_is_restarted_and_nobody_else_notices(broker: Broker, admin: AdminClient) -> None:
    """Closing says that it comes back (epoch -2): its partitions wait for it, and come back in its first answer."""
    create(admin, t=4)
    with static(broker, "two") as second:
        first = static(broker, "one")
        settle(first, second, owned=[2, 2])
        before, other, epoch = first.owned, second.owned, group_epoch(broker)
        second.revoked.clear()
        first.consumer.close()
        second.poll()
        with static(broker, "one") as first:
            until(lambda: first.owned == before, what="the partitions of before", step=first.poll)
            second.poll()
            assert (second.owned, second.revoked, group_epoch(broker)) == (other, [], epoch)


def test_static_member_that_stays_away_loses_its_partitions_when_its_session_ends(
    broker: Broker, admin: AdminClient
) -> None:
    create(admin, t=4)
    with static(broker, "two") as second:
        first = static(broker, "one")
        settle(first, second, owned=[2, 2])
        first.consumer.close()
        second.poll()
        assert len(second.owned) == 2
        settle(second, owned=[4])


def test_second_process_with_a_name_in_use_is_told_and_the_first_goes_on(broker: Broker, admin: AdminClient) -> None:
    create(admin, t=2)
    with static(broker, "one") as first:
        settle(first, total=2)
        second = static(broker, "one")
        seen: list[KafkaError] = []

        def poll() -> None:
            try:
                for message in second.consumer.consume(10, 0.1):
                    seen.extend(error for error in [message.error()] if error is not None)
            except KafkaException as raised:
                seen.append(raised.args[0])
            first.poll()

        until(lambda: bool(seen), what="the error of the second", step=poll)
        assert (seen[0].code(), "instance ID is still used" in seen[0].str()) == (KafkaError._FATAL, True)
        assert first.owned == {0, 1}
        second.consumer.close()


def test_crashed_static_member_is_replaced_long_before_its_session_ends() -> None:
    """Apache Kafka keeps the new process out, with an error that ends it, for up to 45 seconds."""
    code = (
        "import sys, confluent_kafka as c\n"
        "consumer = c.Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'g', 'group.protocol': 'consumer',\n"
        "    'group.instance.id': 'one'})\n"
        "consumer.subscribe(['t'], on_assign=lambda *_: print('assigned', flush=True))\n"
        "while True: consumer.poll(0.1)\n"
    )
    with Broker(config={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        create(AdminClient({"bootstrap.servers": broker.bootstrap_servers}), t=2)
        command = [sys.executable, "-c", code, broker.bootstrap_servers]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None and child.stdout.readline() == "assigned\n"
                epoch = group_epoch(broker)
            finally:
                child.kill()
        with static(broker, "one") as successor:
            settle(successor, owned=[2], total=2)
            assert group_epoch(broker) == epoch


def test_administrator_removes_a_static_member_by_its_name_alone(broker: Broker, admin: AdminClient) -> None:
    """LeaveGroup with an instance id and no member id, as Kafka's tools send it."""
    create(admin, t=2)
    with static(broker, "two") as second:
        first = static(broker, "one")
        settle(first, second, owned=[1, 1], total=2)
        first.consumer.close()
        client = RawClient(broker.bootstrap_servers)
        row = MemberIdentity(member_id="", group_instance_id="one")
        answer = client.ask(LeaveGroupRequest(group_id="g", members=[row]), 4)
        client.socket.close()
        assert [member.error_code for member in answer.members] == [0]  # type: ignore[attr-defined]
        settle(second, owned=[2], total=2)


def test_topics_that_come_and_go_while_a_pattern_is_subscribed(broker: Broker, admin: AdminClient) -> None:
    """librdkafka sends what begins with `^` to the broker as one pattern."""
    create(admin, orders_eu=2, invoices=1)
    with Member(broker, "consumer").subscribe("^orders-.*") as member:
        wait_for(member, {("orders-eu", 0), ("orders-eu", 1)})
        create(admin, orders_us=1, payments=1)
        wait_for(member, {("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0)})
        admin.create_partitions([NewPartitions("orders-us", 3)])["orders-us"].result(20)
        wait_for(member, {("orders-eu", 0), ("orders-eu", 1), ("orders-us", 0), ("orders-us", 1), ("orders-us", 2)})


def test_two_patterns_and_a_name(broker: Broker, admin: AdminClient) -> None:
    create(admin, orders_eu=1, invoices=1, payments_a=1, other=1)
    with Member(broker, "consumer").subscribe("^orders-.*", "^pay.*", "invoices") as member:
        wait_for(member, {("orders-eu", 0), ("payments-a", 0), ("invoices", 0)})
        with Member(broker, "consumer").subscribe("^pay.*") as second:
            member.consumer.subscribe(["invoices"])
            until(
                lambda: (member.held, second.held) == ({("invoices", 0)}, {("payments-a", 0)}),
                what="each has its own",
                step=lambda: (member.poll(), second.poll()),
            )


def test_deleted_and_made_anew_under_a_pattern(broker: Broker, admin: AdminClient) -> None:
    create(admin, orders_eu=1, orders_us=1)
    member = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe(["^orders-.*"])

    def held() -> set[str]:
        return {each.topic for each in member.assignment()}

    def poll() -> None:
        member.consume(100, 0.05)

    until(lambda: held() == {"orders-eu", "orders-us"}, what="both topics", step=poll)
    admin.delete_topics(["orders-us"])["orders-us"].result(20)
    until(lambda: held() == {"orders-eu"}, what="one topic", step=poll)
    create(admin, orders_us=1)
    until(lambda: held() == {"orders-eu", "orders-us"}, what="both topics again", step=poll)
    member.close()


def test_bad_pattern_is_refused_by_name(broker: Broker, admin: AdminClient) -> None:
    """More repetitions than RE2 takes; librdkafka's own check lets it pass."""
    create(admin, t=1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"})
    consumer.subscribe(["^orders-a{1001}"])
    seen: list[KafkaError] = []

    def poll() -> None:
        try:
            seen.extend(error for message in consumer.consume(10, 0.1) if (error := message.error()) is not None)
        except KafkaException as raised:
            seen.append(raised.args[0])

    until(lambda: bool(seen), what="the error", step=poll)
    assert "regular expression is not valid" in seen[0].str()
    consumer.close()

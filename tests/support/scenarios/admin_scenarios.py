"""What our admin client must do against any broker: every method, and every refusal that a caller may meet."""

from __future__ import annotations

import pytest

from kohort import Admin, Consumer
from kohort.errors import BrokerError, ConfigError, ErrorCode, PartlyDoneError, UnknownTopicError
from support.peers.group_members import KohortMember, Ledger
from support.scenarios.client_scenarios import (
    fresh,
    group_options,
    is_listed,
    new_topic,
    partitions_of,
    poll_until,
    send_values,
    wait_until,
)


def topics_are_made_grown_and_deleted(bootstrap: str) -> None:
    """create, list, describe, grow, delete; each refusal carries Kafka's code."""
    topic = fresh("managed")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic(topic, 2, configs={"max.message.bytes": 5000})
        wait_until(lambda: is_listed(admin, topic), "the topic is known")
        (listing,) = [each for each in admin.list_topics() if each.name == topic]
        assert (listing.partition_count, listing.is_internal) == (2, False)
        with pytest.raises(BrokerError) as refusal:
            admin.create_topic(topic)
        assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(BrokerError) as refusal:
            admin.create_topic(fresh("managed"), configs={"max.message.bytes": "many"})
        assert refusal.value.code is ErrorCode.INVALID_CONFIG
        with pytest.raises(BrokerError) as refusal:
            admin.create_topic("not/a/name")
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(ConfigError):
            admin.create_topic(fresh("managed"), 0)

        send_values(bootstrap, topic, [b"a", b"b", b"c"], partition=1)
        (described,) = admin.describe_topics([topic])
        assert described.topic_id == listing.topic_id
        assert described.configs == {"max.message.bytes": "5000"}
        assert [(row.partition, row.begin_offset, row.end_offset) for row in described.partitions] == [
            (0, 0, 0),
            (1, 0, 3),
        ]
        assert all(row.leader in row.replicas and row.replicas == row.in_sync for row in described.partitions)

        admin.create_partitions(topic, 4)
        wait_until(lambda: len(admin.describe_topics([topic])[0].partitions) == 4, "four partitions are known")
        with pytest.raises(BrokerError) as refusal:
            admin.create_partitions(topic, 3)
        assert refusal.value.code is ErrorCode.INVALID_PARTITIONS

        missing = fresh("missing")
        with pytest.raises(UnknownTopicError, match=missing):
            admin.describe_topics([topic, missing])
        with pytest.raises(PartlyDoneError, match=missing) as partly:
            admin.delete_topics([missing, topic])
        assert (list(partly.value.done), list(partly.value.failed)) == ([topic], [missing])
        assert isinstance(partly.value.failed[missing], UnknownTopicError)
        wait_until(lambda: not is_listed(admin, topic), "the others are deleted all the same")


def groups_are_listed_and_described(bootstrap: str, protocol: str) -> None:
    """A group with one member: its listing, description and offsets; then without: deleted."""
    group = fresh("watched")
    options = group_options(bootstrap, group, protocol)
    ledger = Ledger()
    with new_topic(bootstrap, "watched", 2) as topic, Admin(bootstrap_servers=bootstrap) as admin:
        first, second = partitions_of(topic, 2)
        send_values(bootstrap, topic, [b"a", b"b", b"c"])
        with KohortMember(ledger, "only", topic=topic, **options, client_id="watcher"):
            ledger.wait_for_records({first: 3})
            wait_until(lambda: _has_committed(admin, group), "the commit of what was read")
            (listing,) = [each for each in admin.list_groups(types=[protocol]) if each.group_id == group]
            assert (listing.group_type, listing.state.lower(), listing.protocol_type) == (
                protocol,
                "stable",
                "consumer",
            )
            assert group in [each.group_id for each in admin.list_groups(states=["Stable"])]
            assert group not in [each.group_id for each in admin.list_groups(states=["Empty"])]
            described = admin.describe_group(group)
            assert (described.group_type, described.state.lower()) == (protocol, "stable")
            assert described.assignor == ("uniform" if protocol == "consumer" else "range")
            (member,) = described.members
            assert (member.client_id, member.assignment) == ("watcher", (first, second))
            assert member.client_host.endswith("127.0.0.1")
            if protocol == "consumer":
                assert described.group_epoch == described.assignment_epoch == member.member_epoch
                assert member.target == member.assignment
            send_values(bootstrap, topic, [b"d"], partition=1)
            wait_until(lambda: _lags(admin, group) == [0, 0], "no lag")
            rows = admin.group_offsets(group)
            assert [(row.partition, row.committed, row.end_offset, row.lag) for row in rows] == [
                (0, 3, 3, 0),
                (1, 1, 1, 0),
            ]
            assert {row.member_id for row in rows} == {member.member_id}
            with pytest.raises(BrokerError) as refusal:
                admin.delete_groups([group])
            assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
        send_values(bootstrap, topic, [b"e"])
        assert _lags(admin, group) == [1, 0]
        assert admin.describe_group(group).members == ()
        admin.delete_groups([group])
        assert group not in [each.group_id for each in admin.list_groups()]
        assert admin.group_offsets(group) == []
        for refused in (lambda: admin.delete_groups([group]), lambda: admin.describe_group(group)):
            with pytest.raises(BrokerError) as refusal:
                refused()
            assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def _has_committed(admin: Admin, group: str) -> bool:
    return any(row.committed == 3 for row in admin.group_offsets(group))


def _lags(admin: Admin, group: str) -> list[int | None]:
    return [row.lag for row in admin.group_offsets(group)]


def offsets_of_a_group_without_members(bootstrap: str) -> None:
    """Offsets that were committed without membership belong to a group, too."""
    group = fresh("simple")
    with new_topic(bootstrap, "simple") as topic, Admin(bootstrap_servers=bootstrap) as admin:
        send_values(bootstrap, topic, [b"a", b"b"])
        with Consumer(
            bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign(partitions_of(topic, 1))
            poll_until(consumer, 2)
            consumer.commit({partitions_of(topic, 1)[0]: 1})
        (row,) = admin.group_offsets(group)
        assert (row.committed, row.end_offset, row.lag, row.member_id) == (1, 2, 1, None)


def cluster_is_described(bootstrap: str) -> None:
    """One broker, under the address that everybody uses."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        cluster = admin.describe_cluster()
    assert [f"{broker.host}:{broker.port}" for broker in cluster.brokers] == [bootstrap]
    assert cluster.cluster_id
    assert cluster.controller_id in [broker.broker_id for broker in cluster.brokers]

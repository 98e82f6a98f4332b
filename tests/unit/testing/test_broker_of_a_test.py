"""`kohort.testing.Broker`: reset, a clock that is set forward, and groups at will."""

from __future__ import annotations

import pytest

import kohort
from kohort.errors import ConfigError, StateError
from kohort.testing import Broker, LivingMembersError
from support.waiting import until


def member(broker: Broker, name: str, protocol: str = "consumer") -> kohort.Consumer:
    """A member of `billing` that reads `orders`."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "billing", "client.id": name}
    consumer = kohort.Consumer(options | {"group.protocol": protocol, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    return consumer


def test_nothing_is_left_behind_a_reset() -> None:
    """Topics, groups and faults; the address stays."""
    with Broker() as broker:
        address = broker.bootstrap_servers
        broker.admin.create_topic("orders", 3)
        broker.admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 5})
        broker.faults.drop("Fetch")
        broker.reset()
        assert [row.name for row in broker.admin.list_topics() if not row.is_internal] == []
        assert (broker.admin.list_groups(), list(broker.faults)) == ([], [])
        assert broker.bootstrap_servers == address


def test_a_reset_names_the_members_that_are_left() -> None:
    """And deletes nothing."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        with member(broker, "forgotten") as consumer:
            until(lambda: bool(consumer.assignment()), what="a partition", step=lambda: consumer.poll(0))
            with pytest.raises(LivingMembersError, match="forgotten of group billing"):
                broker.reset()
            assert "orders" in [row.name for row in broker.admin.list_topics()]


def test_a_session_ends_as_soon_as_the_clock_is_past_it() -> None:
    """45 seconds without a wait: the broker removes a member that it has not heard, and says why."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        group = broker.group("billing")
        with member(broker, "a") as consumer:
            until(lambda: bool(consumer.assignment()), what="a partition", step=lambda: consumer.poll(0))
            before = broker.clock.now_ms()
            broker.clock.advance(46)
            assert broker.clock.now_ms() - before >= 46_000
            until(lambda: "silent for the whole session timeout" in group.tell(), what="the reason")


def test_offsets_expire_and_records_go_when_their_time_is_over() -> None:
    """`offsets.retention.minutes` and `retention.ms`, at once."""
    with Broker(config={"offsets.retention.minutes": 1, "offset.metadata.max.bytes": 100}) as broker:
        broker.admin.create_topic("orders", 1)
        broker.admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 0})
        assert broker.group("billing").committed() == {("orders", 0): 0}
        broker.clock.advance(3600)
        until(lambda: broker.admin.list_groups() == [], what="the end of the group")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_rebalances_when_the_test_says_so(protocol: str) -> None:
    """A guest comes and goes; the member loses something to it and has it again."""
    with Broker(config={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        broker.admin.create_topic("orders", 4)
        with member(broker, "a", protocol) as consumer:
            until(lambda: len(consumer.assignment()) == 4, what="all partitions", step=lambda: consumer.poll(0))
            epoch = broker.group("billing").describe().group_epoch  # type: ignore[union-attr]
            import threading

            forced = threading.Thread(target=broker.group("billing").rebalance)
            forced.start()
            until(lambda: not forced.is_alive(), what="the rebalance", step=lambda: consumer.poll(0.01))
            until(lambda: len(consumer.assignment()) == 4, what="all partitions", step=lambda: consumer.poll(0))
            found = broker.group("billing").wait_for(members=1)
            assert found is not None and (protocol == "classic" or found.group_epoch == (epoch or 0) + 2)


def test_a_member_is_kicked_by_its_client_id_and_comes_back() -> None:
    """With another member epoch; a name that is not there is told with those that are."""
    with Broker(config={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        broker.admin.create_topic("orders", 1)
        group = broker.group("billing")
        with member(broker, "a") as consumer:
            until(lambda: bool(consumer.assignment()), what="a partition", step=lambda: consumer.poll(0))
            with pytest.raises(ConfigError, match="no member 'b': it has a"):
                group.kick("b")
            assert len(group.kick("a")) == 1
            until(
                lambda: (
                    bool(consumer.assignment()) and group.describe() is not None and len(group.describe().members) == 1
                ),
                what="its return",
                step=lambda: consumer.poll(0),
            )  # type: ignore[union-attr]


def test_a_frozen_group_hears_nothing_of_its_coordinator_and_goes_on_afterwards() -> None:
    """A commit waits, and is taken when the coordinator answers again."""
    with Broker() as broker:
        broker.admin.create_topic("orders", 1)
        # Without commits of its own: a consumer that closes commits its position, which is 0.
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "billing",
            "request.timeout.ms": 5_000,
            "enable.auto.commit": False,
        }
        told: list[object] = []
        with kohort.Consumer(options) as consumer:
            consumer.assign([("orders", 0)])  # type: ignore[list-item]
            with broker.group("billing").freeze():
                consumer.commit_async(
                    {kohort.TopicPartition("orders", 0): 3}, callback=lambda *outcome: told.append(outcome)
                )
                until(lambda: any(each.struck for each in broker.faults), what="it", step=lambda: consumer.poll(0))
                assert not told
            until(lambda: bool(told), what="the commit", step=lambda: consumer.poll(0))
        broker.group("billing").assert_committed({("orders", 0): 3})


def test_what_is_wrong_is_told_by_name() -> None:
    """A group that is not there, a wait in vain, another's offsets, a clock that goes back."""
    with Broker() as broker:
        group = broker.group("nobody")
        assert group.describe() is None and group.tell() == ""
        assert group.wait_for(members=0) is None
        with pytest.raises(TimeoutError, match="nobody was to have 2 members and to be stable, and is not"):
            group.wait_for(members=2, timeout_s=0.05)
        with pytest.raises(AssertionError, match="has committed nothing, not orders-0: 1"):
            group.assert_committed({("orders", 0): 1}, timeout_s=0.05)
        with pytest.raises(StateError, match="no members that could rebalance"):
            group.rebalance()
        for wrong in (-1, 0, True, "45", float("nan"), float("inf")):
            with pytest.raises(ConfigError, match="more than 0"):
                broker.clock.advance(wrong)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="does not run"):
        _ = broker.admin

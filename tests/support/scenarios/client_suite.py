"""The scenarios of our clients as one class of tests: a file inherits it and says by fixtures which broker is meant.

Fixtures: `address` (HOST:PORT of a broker with `BROKER_CONFIG`), `restart` (restarts it on its data), `strict_address`
(one that creates no topics by itself and advertises `proxy`), `proxy`, `splitting` (a proxy in front of a broker with
`BROKER_CONFIG`, which advertises it).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.peers.lossy_proxy import LossyProxy
from support.ports import quiet_port
from support.scenarios import (
    admin_scenarios,
    callback_scenarios,
    client_data_scenarios,
    client_scenarios,
    offset_scenarios,
    pattern_scenarios,
    static_scenarios,
)
from support.scenarios.client_scenarios import MODES, PROTOCOLS

both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
all_modes = pytest.mark.parametrize("protocol", MODES)


class ClientSuite:
    """What consumer, producer and admin client must do against any broker."""

    @all_modes
    def test_members_join_leave_and_vanish(self, address: str, protocol: str) -> None:
        """Three members share six partitions; one joins, one leaves, one falls silent, one is killed."""
        client_scenarios.members_join_leave_and_vanish(address, protocol)

    @all_modes
    def test_our_members_and_confluent_ones_share_a_group(self, address: str, protocol: str) -> None:
        """Both speak the same protocol."""
        client_scenarios.mixed_members_share(address, protocol, protocol)

    @all_modes
    def test_callbacks_follow_the_assignment(self, address: str, protocol: str) -> None:
        """assigned, revoked: in that order, with what moves."""
        client_scenarios.callbacks_follow_the_assignment(address, protocol)

    @all_modes
    def test_callbacks_may_ask_and_commit(self, address: str, protocol: str) -> None:
        """position, committed, end_offsets, seek, pause and commit in on_assigned and on_revoked."""
        callback_scenarios.callbacks_may_ask_and_commit(address, protocol)

    @all_modes
    def test_rebalances_have_a_reason(self, address: str, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
        """last_rebalance, enforce_rebalance, group_metadata."""
        callback_scenarios.rebalances_have_a_reason(
            address, protocol, lambda: [record.getMessage() for record in caplog.records]
        )

    @both_protocols
    def test_callbacks_refuse_what_would_turn_in_a_circle(self, address: str, protocol: str) -> None:
        """poll, subscribe, assign, unsubscribe and close in a callback."""
        callback_scenarios.callbacks_refuse_what_would_turn_in_a_circle(address, protocol)

    @both_protocols
    def test_revoked_partitions_that_were_never_read_have_a_position(self, address: str, protocol: str) -> None:
        """What was fetched ahead was not handed out."""
        callback_scenarios.revoked_partitions_that_were_never_read_have_a_position(address, protocol)

    @both_protocols
    def test_exception_of_a_callback_is_raised_and_forgotten(self, address: str, protocol: str) -> None:
        """By the poll that ran it, once."""
        callback_scenarios.exception_of_a_callback_is_raised_and_forgotten(address, protocol)

    @both_protocols
    def test_slow_application_is_left_behind(self, address: str, protocol: str) -> None:
        """lost: after max.poll.interval.ms without a poll."""
        client_scenarios.slow_application_is_left_behind(address, protocol)

    @both_protocols
    def test_offsets_are_committed_and_sought(self, address: str, protocol: str) -> None:
        """commit, committed, position, seek."""
        client_scenarios.offsets_are_committed_and_sought(address, protocol)

    @both_protocols
    def test_metadata_is_kept(self, address: str, protocol: str) -> None:
        """OffsetAndMetadata, and the shapes of what may be committed."""
        offset_scenarios.metadata_is_kept(address, protocol)

    @both_protocols
    def test_asynchronous_commits_keep_their_order(self, address: str, protocol: str) -> None:
        """commit_async."""
        offset_scenarios.asynchronous_commits_keep_their_order(address, protocol)

    @both_protocols
    def test_stored_offsets_are_committed(self, address: str, protocol: str) -> None:
        """enable.auto.offset.store off."""
        offset_scenarios.stored_offsets_are_committed(address, protocol)

    @both_protocols
    def test_topic_made_again_is_read_from_its_beginning(self, address: str, protocol: str) -> None:
        """Offsets of the deleted one say nothing of it; auto-commit."""
        offset_scenarios.topic_made_again_is_read_from_its_beginning(address, protocol)

    @both_protocols
    def test_deleted_topic_holds_up_no_commit_of_another(self, address: str, protocol: str) -> None:
        """commit: outcomes by partition."""
        offset_scenarios.deleted_topic_holds_up_no_commit_of_another(address, protocol)

    @both_protocols
    def test_automatic_commits_go_on_beside_a_deleted_topic(self, address: str, protocol: str) -> None:
        """None waits for what cannot be stored."""
        offset_scenarios.automatic_commits_go_on_beside_a_deleted_topic(address, protocol)

    @both_protocols
    def test_subscriber_leaves_a_deleted_topic_alone(self, address: str, protocol: str) -> None:
        """allow.auto.create.topics: once."""
        offset_scenarios.subscriber_leaves_a_deleted_topic_alone(address, protocol)

    def test_positions_are_sought(self, address: str) -> None:
        """seek_to_beginning, seek_to_end, seek_to_timestamp; position and lag behind them."""
        offset_scenarios.positions_are_sought(address)

    @both_protocols
    def test_ends_are_known_without_asking(self, address: str, protocol: str) -> None:
        """lag, watermarks."""
        offset_scenarios.ends_are_known_without_asking(address, protocol)

    @both_protocols
    def test_progress_is_committed_by_itself(self, address: str, protocol: str) -> None:
        """enable.auto.commit."""
        client_scenarios.progress_is_committed_by_itself(address, protocol)

    @both_protocols
    def test_surprises_of_groups_are_said(self, address: str, protocol: str, caplog: pytest.LogCaptureFixture) -> None:
        """The log: a start at the end, a member without a partition."""
        client_scenarios.surprises_of_groups_are_said(
            address, protocol, lambda: [record.getMessage() for record in caplog.records]
        )

    @both_protocols
    def test_topics_that_match_are_read(self, address: str, protocol: str) -> None:
        """subscribe(pattern=...)."""
        pattern_scenarios.topics_that_match_are_read(address, protocol)

    @both_protocols
    def test_static_member_returns_unnoticed(self, address: str, protocol: str) -> None:
        """group.instance.id."""
        static_scenarios.static_member_returns_unnoticed(address, protocol)

    def test_younger_holder_of_a_name_fences_the_older(self, address: str) -> None:
        """FENCED_INSTANCE_ID."""
        static_scenarios.younger_holder_of_a_name_fences_the_older(address)

    def test_partitions_are_assigned_by_hand(self, address: str) -> None:
        """assign."""
        client_scenarios.partitions_are_assigned_by_hand(address)

    def test_reset_decides_where_to_start(self, address: str) -> None:
        """auto.offset.reset."""
        client_scenarios.reset_decides_where_to_start(address)

    def test_our_records_are_read_by_others(self, address: str) -> None:
        """Codecs, acks, headers, tombstones."""
        client_data_scenarios.our_records_are_read_by_others(address)

    def test_records_of_others_are_read(self, address: str) -> None:
        """Codecs of confluent-kafka, by poll and poll_arrow."""
        client_data_scenarios.records_of_others_are_read(address)

    def test_keys_go_where_java_puts_them(self, address: str) -> None:
        """The partitioner."""
        client_data_scenarios.keys_go_where_java_puts_them(address)

    @pytest.mark.parametrize("rule", ["consistent", "fnv1a", "fnv1a_random"])
    def test_keys_go_where_librdkafka_puts_them(self, address: str, rule: str) -> None:
        """Its other partitioners."""
        client_data_scenarios.keys_go_where_librdkafka_puts_them(address, rule)

    def test_records_without_key_reach_every_partition(self, address: str) -> None:
        """The partitioner without keys."""
        client_data_scenarios.records_without_key_reach_every_partition(address)

    def test_missing_topic_is_created_by_sending(self, address: str, caplog: pytest.LogCaptureFixture) -> None:
        """auto.create.topics.enable, and one line that says so."""
        topic = client_data_scenarios.missing_topic_is_created_by_sending(address)
        assert [record.getMessage() for record in caplog.records] == [f"created topic {topic} (1 partition)"]

    def test_refused_records_say_why(self, address: str) -> None:
        """Refusals of the broker and of our own."""
        client_data_scenarios.refused_records_say_why(address)

    def test_wrong_address_is_named(self) -> None:
        """Nobody listens."""
        client_data_scenarios.wrong_address_is_named(quiet_port())

    def test_records_wait_for_their_first_broker(self, address: str, caplog: pytest.LogCaptureFixture) -> None:
        """As for any other: for delivery.timeout.ms."""
        client_data_scenarios.records_wait_for_their_first_broker(
            address, quiet_port(), lambda: [record.getMessage() for record in caplog.records]
        )

    def test_topics_are_made_grown_and_deleted(self, address: str) -> None:
        """Admin: topics."""
        admin_scenarios.topics_are_made_grown_and_deleted(address)

    @both_protocols
    def test_groups_are_listed_and_described(self, address: str, protocol: str) -> None:
        """Admin: groups."""
        admin_scenarios.groups_are_listed_and_described(address, protocol)

    def test_offsets_of_a_group_without_members(self, address: str) -> None:
        """Admin: offsets."""
        admin_scenarios.offsets_of_a_group_without_members(address)

    def test_cluster_is_described(self, address: str) -> None:
        """Admin: the cluster."""
        admin_scenarios.cluster_is_described(address)

    @both_protocols
    def test_record_in_work_is_read_again(self, address: str, protocol: str) -> None:
        """An exception passes through `finally: consumer.close()`."""
        client_scenarios.record_in_work_is_read_again(address, protocol)

    def test_groups_outlive_their_coordinator(self, address: str, restart: Callable[[], None]) -> None:
        """A restart of the broker on its data."""
        client_scenarios.groups_outlive_their_coordinator(address, restart)

    def test_missing_topic_is_named(self, strict_address: str) -> None:
        """Nothing is created by itself."""
        client_data_scenarios.missing_topic_is_named(strict_address)

    @both_protocols
    def test_member_that_is_cut_off_lets_go_before_another_has_its_partitions(
        self, splitting: LossyProxy, protocol: str
    ) -> None:
        """By the group's session or its own, whichever is shorter."""
        client_scenarios.cut_off_member_lets_go(splitting, protocol)

    def test_lost_answers_double_nothing(self, strict_address: str, proxy: LossyProxy) -> None:
        """The idempotent producer and a connection that breaks."""
        client_data_scenarios.lost_answers_double_nothing(strict_address, proxy)

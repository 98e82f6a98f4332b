"""The administration client: topics, groups and their offsets, clusters, transactions.

The calls are those of the families beside this file, which are coroutines; the door names each of them once.
Source: Kafka's Admin; C9.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from kohort.client.admin.admin_machine import AdminCloseAsked, AdminEvent, AdminMachine
from kohort.client.admin.calls.access import AccessCalls
from kohort.client.admin.calls.cluster import ClusterCalls, ReplicaCalls
from kohort.client.admin.calls.configs import ConfigCalls
from kohort.client.admin.calls.groups import GroupCalls
from kohort.client.admin.calls.membership import MembershipCalls
from kohort.client.admin.calls.moves import MoveCalls
from kohort.client.admin.calls.offsets import OffsetCalls
from kohort.client.admin.calls.quotas import QuotaCalls
from kohort.client.admin.calls.topics import RecordCalls, TopicCalls
from kohort.client.admin.calls.transactions import TransactionCalls
from kohort.client.admin.calls.users import UserCalls
from kohort.client.admin.questions import Questions
from kohort.client.core.host import Host, refuse_copies
from kohort.client.core.thread import IoThread
from kohort.client.foreign_names import ADMINS, answering
from kohort.client.options import ADMIN_OPTIONS, ClientSettings, client_settings
from kohort.client.steps import Pause, Wait, blocking, run

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions

R = TypeVar("R")
_FAMILIES: Final = (
    TopicCalls,
    RecordCalls,
    ConfigCalls,
    GroupCalls,
    OffsetCalls,
    MembershipCalls,
    MoveCalls,
    ClusterCalls,
    ReplicaCalls,
    TransactionCalls,
    AccessCalls,
    UserCalls,
    QuotaCalls,
)


@answering(ADMINS)
class Admin:
    """Asks a cluster about itself, topics and groups, and changes them. May be shared by threads.

    Options are Kafka's in snake_case, e.g. `request_timeout_ms`, `default_api_timeout_ms`, or by their dotted names in
    a mapping: `Admin({"request.timeout.ms": 5000})`.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = admin.create_topic("orders", 3)
    ...     [(topic.name, topic.partition_count) for topic in admin.list_topics() if not topic.is_internal]
    [('orders', 3)]
    """

    list_topics = blocking(TopicCalls.list_topics)
    describe_topics = blocking(TopicCalls.describe_topics)
    create_topic = blocking(TopicCalls.create_topic)
    create_topics = blocking(TopicCalls.create_topics)
    create_partitions = blocking(TopicCalls.create_partitions)
    delete_topics = blocking(TopicCalls.delete_topics)

    list_offsets = blocking(RecordCalls.list_offsets)
    delete_records = blocking(RecordCalls.delete_records)

    describe_configs = blocking(ConfigCalls.describe_configs)
    alter_configs = blocking(ConfigCalls.alter_configs)
    describe_group_configs = blocking(ConfigCalls.describe_group_configs)
    alter_group_configs = blocking(ConfigCalls.alter_group_configs)

    list_groups = blocking(GroupCalls.list_groups)
    summarize_groups = blocking(GroupCalls.summarize_groups)
    describe_group = blocking(GroupCalls.describe_group)
    describe_groups = blocking(GroupCalls.describe_groups)
    group_offsets = blocking(GroupCalls.group_offsets)
    groups_offsets = blocking(GroupCalls.groups_offsets)
    list_group_offsets = blocking(GroupCalls.list_group_offsets)
    group_history = blocking(GroupCalls.group_history)
    explain_group = blocking(GroupCalls.explain_group)
    delete_groups = blocking(GroupCalls.delete_groups)

    alter_group_offsets = blocking(OffsetCalls.alter_group_offsets)
    delete_group_offsets = blocking(OffsetCalls.delete_group_offsets)
    remove_members = blocking(OffsetCalls.remove_members)
    reset_offsets = blocking(OffsetCalls.reset_offsets)

    enable_static_membership = blocking(MembershipCalls.enable_static_membership)
    enable_dynamic_membership = blocking(MembershipCalls.enable_dynamic_membership)
    force_rebalance = blocking(MembershipCalls.force_rebalance)

    switch_partition = blocking(MoveCalls.switch_partition)
    submit_moves = blocking(MoveCalls.submit_moves)
    moves = blocking(MoveCalls.moves)
    wait_for_moves = blocking(MoveCalls.wait_for_moves)

    describe_cluster = blocking(ClusterCalls.describe_cluster)
    describe_features = blocking(ClusterCalls.describe_features)
    update_features = blocking(ClusterCalls.update_features)
    describe_broker = blocking(ClusterCalls.describe_broker)
    describe_quorum = blocking(ClusterCalls.describe_quorum)
    describe_log_dirs = blocking(ClusterCalls.describe_log_dirs)
    describe_replica_log_dirs = blocking(ClusterCalls.describe_replica_log_dirs)
    alter_replica_log_dirs = blocking(ClusterCalls.alter_replica_log_dirs)

    elect_leaders = blocking(ReplicaCalls.elect_leaders)
    alter_partition_reassignments = blocking(ReplicaCalls.alter_partition_reassignments)
    list_partition_reassignments = blocking(ReplicaCalls.list_partition_reassignments)

    list_transactions = blocking(TransactionCalls.list_transactions)
    describe_transactions = blocking(TransactionCalls.describe_transactions)
    fence_producers = blocking(TransactionCalls.fence_producers)
    describe_producers = blocking(TransactionCalls.describe_producers)
    find_hanging_transactions = blocking(TransactionCalls.find_hanging_transactions)
    abort_transaction = blocking(TransactionCalls.abort_transaction)

    create_acls = blocking(AccessCalls.create_acls)
    describe_acls = blocking(AccessCalls.describe_acls)
    delete_acls = blocking(AccessCalls.delete_acls)

    describe_user_scram_credentials = blocking(UserCalls.describe_user_scram_credentials)
    alter_user_scram_credentials = blocking(UserCalls.alter_user_scram_credentials)

    describe_client_quotas = blocking(QuotaCalls.describe_client_quotas)
    alter_client_quotas = blocking(QuotaCalls.alter_client_quotas)

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Nothing is connected before the first call.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        settings, timeout_s = admin_settings(config, options)
        self._io: IoThread[AdminEvent] = IoThread(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )
        self._calls = calls_of(self._io, timeout_s)

    __reduce__ = refuse_copies

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(config)

    def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            self._io.join(5.0)
        self._io.raise_failure()

    def metrics(self) -> dict[str, float]:
        """What this client has counted so far, by Kafka's names; see docs/how-to/read-metrics.md."""
        return self._io.traffic.metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._wait)

    def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause), "there are no callbacks"
        if wait.ticket is not None:
            return self._io.wait(wait.ticket, wait.seconds)
        time.sleep(wait.seconds)
        return None


def admin_settings(config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> tuple[ClientSettings, float]:
    """What the options mean, and how long a call may take, seconds."""
    values = ADMIN_OPTIONS.parse(ADMIN_OPTIONS.gather(config, options))
    settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
    return settings, values["default.api.timeout.ms"] / 1000


def calls_of(host: Host[AdminEvent], timeout_s: float) -> dict[str, Any]:
    """One object of each family, by the name of its class."""
    questions = Questions(host, timeout_s)
    return {family.__name__: family(questions) for family in _FAMILIES}

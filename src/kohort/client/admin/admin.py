"""The admin client: topics, groups and their offsets, clusters, transactions.

The calls are coroutines in the modules of `admin/calls`; `AdminDoor` lists each of them once for both clients.
Source: Kafka's Admin; C9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kohort.client.admin.admin_machine import AdminCloseAsked, AdminEvent, AdminMachine
from kohort.client.admin.calls.access import AccessCalls
from kohort.client.admin.calls.cluster import ClusterCalls, ReplicaCalls
from kohort.client.admin.calls.configs import ConfigCalls
from kohort.client.admin.calls.groups import GroupCalls
from kohort.client.admin.calls.membership import MembershipCalls
from kohort.client.admin.calls.moves import MoveCalls
from kohort.client.admin.calls.offsets import OffsetCalls
from kohort.client.admin.calls.quotas import QuotaCalls
from kohort.client.admin.calls.tokens import TokenCalls
from kohort.client.admin.calls.topics import RecordCalls, TopicCalls
from kohort.client.admin.calls.transactions import TransactionCalls
from kohort.client.admin.calls.users import UserCalls
from kohort.client.admin.questions import Calls, Questions
from kohort.client.core.host import Host, refuse_copies
from kohort.client.core.thread import IoThread
from kohort.client.foreign_names import ADMINS, answering
from kohort.client.options import ADMIN_OPTIONS, client_settings
from kohort.client.steps import Call, Pause, Wait, blocking, run

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions

R = TypeVar("R")


class AdminDoor:
    """The list of an admin client's calls, from which the blocking and the asyncio client are made."""

    list_topics = Call(TopicCalls.list_topics)
    describe_topics = Call(TopicCalls.describe_topics)
    create_topic = Call(TopicCalls.create_topic)
    create_topics = Call(TopicCalls.create_topics)
    create_partitions = Call(TopicCalls.create_partitions)
    delete_topics = Call(TopicCalls.delete_topics)
    list_offsets = Call(RecordCalls.list_offsets)
    delete_records = Call(RecordCalls.delete_records)
    describe_configs = Call(ConfigCalls.describe_configs)
    alter_configs = Call(ConfigCalls.alter_configs)
    describe_group_configs = Call(ConfigCalls.describe_group_configs)
    alter_group_configs = Call(ConfigCalls.alter_group_configs)
    list_groups = Call(GroupCalls.list_groups)
    summarize_groups = Call(GroupCalls.summarize_groups)
    describe_group = Call(GroupCalls.describe_group)
    describe_groups = Call(GroupCalls.describe_groups)
    group_offsets = Call(GroupCalls.group_offsets)
    groups_offsets = Call(GroupCalls.groups_offsets)
    list_group_offsets = Call(GroupCalls.list_group_offsets)
    group_history = Call(GroupCalls.group_history)
    explain_group = Call(GroupCalls.explain_group)
    delete_groups = Call(GroupCalls.delete_groups)
    alter_group_offsets = Call(OffsetCalls.alter_group_offsets)
    delete_group_offsets = Call(OffsetCalls.delete_group_offsets)
    remove_members = Call(OffsetCalls.remove_members)
    reset_offsets = Call(OffsetCalls.reset_offsets)
    enable_static_membership = Call(MembershipCalls.enable_static_membership)
    enable_dynamic_membership = Call(MembershipCalls.enable_dynamic_membership)
    force_rebalance = Call(MembershipCalls.force_rebalance)
    switch_partition = Call(MoveCalls.switch_partition)
    submit_moves = Call(MoveCalls.submit_moves)
    moves = Call(MoveCalls.moves)
    wait_for_moves = Call(MoveCalls.wait_for_moves)
    describe_cluster = Call(ClusterCalls.describe_cluster)
    describe_features = Call(ClusterCalls.describe_features)
    update_features = Call(ClusterCalls.update_features)
    describe_broker = Call(ClusterCalls.describe_broker)
    describe_quorum = Call(ClusterCalls.describe_quorum)
    describe_log_dirs = Call(ClusterCalls.describe_log_dirs)
    describe_replica_log_dirs = Call(ClusterCalls.describe_replica_log_dirs)
    alter_replica_log_dirs = Call(ClusterCalls.alter_replica_log_dirs)
    elect_leaders = Call(ReplicaCalls.elect_leaders)
    alter_partition_reassignments = Call(ReplicaCalls.alter_partition_reassignments)
    list_partition_reassignments = Call(ReplicaCalls.list_partition_reassignments)
    list_transactions = Call(TransactionCalls.list_transactions)
    describe_transactions = Call(TransactionCalls.describe_transactions)
    transaction_history = Call(TransactionCalls.transaction_history)
    fence_producers = Call(TransactionCalls.fence_producers)
    describe_producers = Call(TransactionCalls.describe_producers)
    find_hanging_transactions = Call(TransactionCalls.find_hanging_transactions)
    abort_transaction = Call(TransactionCalls.abort_transaction)
    create_acls = Call(AccessCalls.create_acls)
    describe_acls = Call(AccessCalls.describe_acls)
    delete_acls = Call(AccessCalls.delete_acls)
    describe_user_scram_credentials = Call(UserCalls.describe_user_scram_credentials)
    alter_user_scram_credentials = Call(UserCalls.alter_user_scram_credentials)
    describe_client_quotas = Call(QuotaCalls.describe_client_quotas)
    alter_client_quotas = Call(QuotaCalls.alter_client_quotas)
    describe_tokens = Call(TokenCalls.describe_tokens)
    revoke_tokens = Call(TokenCalls.revoke_tokens)

    def __init_subclass__(cls, by: Callable[[Any], Callable[..., object]] | None = None) -> None:
        if by is None:
            # An application's own subclass of a client inherits that client's methods.
            return
        for name, each in vars(AdminDoor).items():
            if isinstance(each, Call):
                setattr(cls, name, by(each.call))

    __reduce__ = refuse_copies

    _io: Any

    def _set_up(
        self, config: Mapping[str, Any] | None, options: Mapping[str, Any], build_host: Callable[..., Host[AdminEvent]]
    ) -> None:
        values = ADMIN_OPTIONS.parse(ADMIN_OPTIONS.gather(config, options))
        settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
        self._io = build_host(AdminMachine(settings), settings, deliver=lambda _: None, what="admin client")
        questions = Questions(self._io, values["default.api.timeout.ms"] / 1000)
        #: One object of each class of calls, by the name of the class.
        self._calls: dict[str, Any] = {family.__name__: family(questions) for family in Calls.__subclasses__()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Create an admin client from a mapping of Kafka's dotted option names."""
        return cls(config)  # type: ignore[call-arg]  # what doors take

    def metrics(self) -> dict[str, float]:
        """Return this client's counters by Kafka's names; see docs/how-to/read-metrics.md."""
        counted: dict[str, float] = self._io.traffic.metrics()
        return counted


@answering(ADMINS)
class Admin(AdminDoor, by=blocking):
    """Kafka's admin client: describes and changes a cluster, its topics and groups. May be shared by threads.

    Options are Kafka's: keywords in snake_case, e.g. `request_timeout_ms`, `default_api_timeout_ms`, or a mapping of
    dotted names: `Admin({"request.timeout.ms": 5000})`.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = admin.create_topic("orders", 3)
    ...     [(topic.name, topic.partition_count) for topic in admin.list_topics() if not topic.is_internal]
    [('orders', 3)]
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Create an admin client; it connects at the first call.

        Args:
            config: a mapping of Kafka's dotted option names; may be combined with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        self._set_up(config, options, IoThread)

    def close(self) -> None:
        """Close the client; calls that are under way fail. Safe to call twice."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            self._io.join(5.0)
        self._io.raise_failure()

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

"""The admin client on an event loop: the calls of `kohort.Admin`, awaited.

Laws: no thread; a call that is cancelled is given up, what it has sent may be carried out.
Source: `client/admin/admin.py`, its twin on a thread; aiokafka's names, where it has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kohort.client.admin.admin import admin_settings, calls_of
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
from kohort.client.core.host import refuse_copies
from kohort.client.core.in_loop import InLoop
from kohort.client.foreign_names import ADMINS, answering
from kohort.client.steps import Pause, Wait, awaited, run_on_loop

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions


R = TypeVar("R")


@answering(ADMINS)
class Admin:
    """Asks a cluster, and changes it, on the running loop; calls and options as those of `kohort.Admin`.

    May be shared by the tasks of a loop. A call that is cancelled is given up; what it has sent may be carried out.

    >>> import asyncio, kohort, kohort.aio
    >>> async def partitions(address):
    ...     async with kohort.aio.Admin(bootstrap_servers=address) as admin:
    ...         await admin.create_topic("orders", 3)
    ...         (topic,) = await admin.describe_topics(["orders"])
    ...         return len(topic.partitions)
    >>> with kohort.Broker() as broker:
    ...     asyncio.run(partitions(broker.bootstrap_servers))
    3
    """

    list_topics = awaited(TopicCalls.list_topics)
    describe_topics = awaited(TopicCalls.describe_topics)
    create_topic = awaited(TopicCalls.create_topic)
    create_topics = awaited(TopicCalls.create_topics)
    create_partitions = awaited(TopicCalls.create_partitions)
    delete_topics = awaited(TopicCalls.delete_topics)

    list_offsets = awaited(RecordCalls.list_offsets)
    delete_records = awaited(RecordCalls.delete_records)

    describe_configs = awaited(ConfigCalls.describe_configs)
    alter_configs = awaited(ConfigCalls.alter_configs)
    describe_group_configs = awaited(ConfigCalls.describe_group_configs)
    alter_group_configs = awaited(ConfigCalls.alter_group_configs)

    list_groups = awaited(GroupCalls.list_groups)
    summarize_groups = awaited(GroupCalls.summarize_groups)
    describe_group = awaited(GroupCalls.describe_group)
    describe_groups = awaited(GroupCalls.describe_groups)
    group_offsets = awaited(GroupCalls.group_offsets)
    groups_offsets = awaited(GroupCalls.groups_offsets)
    list_group_offsets = awaited(GroupCalls.list_group_offsets)
    group_history = awaited(GroupCalls.group_history)
    explain_group = awaited(GroupCalls.explain_group)
    delete_groups = awaited(GroupCalls.delete_groups)

    alter_group_offsets = awaited(OffsetCalls.alter_group_offsets)
    delete_group_offsets = awaited(OffsetCalls.delete_group_offsets)
    remove_members = awaited(OffsetCalls.remove_members)
    reset_offsets = awaited(OffsetCalls.reset_offsets)

    enable_static_membership = awaited(MembershipCalls.enable_static_membership)
    enable_dynamic_membership = awaited(MembershipCalls.enable_dynamic_membership)
    force_rebalance = awaited(MembershipCalls.force_rebalance)

    switch_partition = awaited(MoveCalls.switch_partition)
    submit_moves = awaited(MoveCalls.submit_moves)
    moves = awaited(MoveCalls.moves)
    wait_for_moves = awaited(MoveCalls.wait_for_moves)

    describe_cluster = awaited(ClusterCalls.describe_cluster)
    describe_features = awaited(ClusterCalls.describe_features)
    update_features = awaited(ClusterCalls.update_features)
    describe_broker = awaited(ClusterCalls.describe_broker)
    describe_quorum = awaited(ClusterCalls.describe_quorum)
    describe_log_dirs = awaited(ClusterCalls.describe_log_dirs)
    describe_replica_log_dirs = awaited(ClusterCalls.describe_replica_log_dirs)
    alter_replica_log_dirs = awaited(ClusterCalls.alter_replica_log_dirs)

    elect_leaders = awaited(ReplicaCalls.elect_leaders)
    alter_partition_reassignments = awaited(ReplicaCalls.alter_partition_reassignments)
    list_partition_reassignments = awaited(ReplicaCalls.list_partition_reassignments)

    list_transactions = awaited(TransactionCalls.list_transactions)
    describe_transactions = awaited(TransactionCalls.describe_transactions)
    fence_producers = awaited(TransactionCalls.fence_producers)
    describe_producers = awaited(TransactionCalls.describe_producers)
    find_hanging_transactions = awaited(TransactionCalls.find_hanging_transactions)
    abort_transaction = awaited(TransactionCalls.abort_transaction)

    create_acls = awaited(AccessCalls.create_acls)
    describe_acls = awaited(AccessCalls.describe_acls)
    delete_acls = awaited(AccessCalls.delete_acls)

    describe_user_scram_credentials = awaited(UserCalls.describe_user_scram_credentials)
    alter_user_scram_credentials = awaited(UserCalls.alter_user_scram_credentials)

    describe_client_quotas = awaited(QuotaCalls.describe_client_quotas)
    alter_client_quotas = awaited(QuotaCalls.alter_client_quotas)

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Nothing is connected before the first call, and no loop is needed yet.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        settings, timeout_s = admin_settings(config, options)
        self._io: InLoop[AdminEvent] = InLoop(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )
        self._calls = calls_of(self._io, timeout_s)

    __reduce__ = refuse_copies

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(config)

    async def start(self) -> None:
        """There is nothing to start (aiokafka has it): it connects with its first call."""
        self._io.check()

    async def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            await self._io.join(5.0)
        self._io.raise_failure()

    def metrics(self) -> dict[str, float]:
        """What this client has counted so far, by Kafka's names; see docs/how-to/read-metrics.md."""
        return self._io.traffic.metrics()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return await run_on_loop(call, self._wait)

    async def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause), "there are no callbacks"
        if wait.ticket is not None:
            return await self._io.wait(wait.ticket, wait.seconds)
        await asyncio.sleep(wait.seconds)
        return None

"""The brokers of a `Cluster`: own listeners, over one shared catalogue, log and coordinator.

Laws: a broker serves the partitions that it leads, and refuses others as Apache Kafka does: NOT_LEADER_OR_FOLLOWER,
NOT_COORDINATOR. Every move raises the partition's leader epoch. A group's coordinator is the leader of its partition of
`__consumer_offsets`; a new one knows only the log's content. All state belongs to the event loop's thread.
Source: KIP-320 (leader epochs); Apache Kafka's `LeaderEpochFileCache.endOffsetFor` and `GroupCoordinator.onElection`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kohort.base.clock import WallClock
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import Asker, Peer, Request
from kohort.broker.connections.sockets import listen_on_all
from kohort.broker.context import BrokerContext
from kohort.broker.groups.coordination import Coordination
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeats
from kohort.broker.groups.membership_updates import MembershipUpdates
from kohort.broker.groups.runtime import Runtime, Translate
from kohort.broker.listener import Listeners
from kohort.broker.options.listeners import moved
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.leadership import NO_NODE, Leadership, Node
from kohort.broker.transactions.coordination import TransactionCoordination, Transactions
from kohort.coordinator import commands
from kohort.coordinator.commands.admin import AlterGroupConfigs, DescribeGroupConfigs, ListGroups, ListGroupsReply
from kohort.coordinator.journal_events.reporter import MemberSigns
from kohort.coordinator.records.types import Grants
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, RequestToken, coordinator_partition
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.ownership_links import OwnershipLinks

if TYPE_CHECKING:
    from kohort.broker.transactions.coordination import ListCommand, OnKnown, OnListed, TransactionalBatch
    from kohort.broker.transactions.runtime import TransactionRuntime
    from kohort.coordinator.transactions.commands import AddPartitions, TransactionCommand

#: Commands that any broker carries out for a group: configs belong to the cluster.
_ANYWHERE: Final = (DescribeGroupConfigs, AlterGroupConfigs)


class Leaders:
    """The leader of each partition."""

    def __init__(self, node_ids: Sequence[int]) -> None:
        self.node_ids: Final = node_ids
        #: The brokers that are there.
        self.running: Final[set[int]] = set()
        #: Partition -> its leader, which may be away.
        self._leader: Final[dict[PartitionLog, int]] = {}

    def of(self, log: PartitionLog) -> int:
        """Return the broker that leads a partition; `NO_NODE` while that broker is not running."""
        leader = self._leader.get(log)
        if leader is None:
            leader = self._leader[log] = self.successor(log.partition)
        return leader if leader in self.running else NO_NODE

    def successor(self, partition: int) -> int:
        """Return the default leader of a partition number, chosen round robin among running brokers."""
        count = len(self.node_ids)
        turn = [self.node_ids[(partition + step) % count] for step in range(count)]
        return next((node_id for node_id in turn if node_id in self.running), turn[0])

    def led_by(self, node_id: int) -> list[PartitionLog]:
        """Return the partitions that a broker leads, whether it runs or not."""
        return [log for log, leader in self._leader.items() if leader == node_id]

    def elect(self, log: PartitionLog, node_id: int) -> None:
        """Make a broker the leader of a partition, in a new leader epoch."""
        self._leader[log] = node_id
        log.leader_epoch += 1

    def forget(self, log: PartitionLog) -> None:
        """Forget a deleted partition."""
        self._leader.pop(log, None)


class NodeLeadership(Leadership):
    """One broker's view of leadership: the partitions that it leads, and the leaders of the others."""

    def __init__(self, node: ClusterNode, settings: BrokerSettings) -> None:
        super().__init__(settings)
        self.brokers: Final = node.brokers
        self._leaders: Final = node.brokers.leaders
        #: Listener -> the address that its clients are told instead of the one listened on.
        self._advertised: Final = node.advertised

    @property
    def replicas(self) -> Sequence[int]:
        """Return every broker of the cluster as a replica."""
        return self._leaders.node_ids

    def nodes(self, peer: Peer) -> list[Node]:
        """Return every running broker."""
        return [
            node.leadership.as_told(peer)
            for node in self.brokers.nodes.values()
            if node.leadership is not None and node.node_id in self._leaders.running
        ]

    def as_told(self, peer: Peer) -> Node:
        """Return the address of this broker that clients of `peer`'s listener get in metadata."""
        told = self._advertised.get(peer.listener.name)
        return super().nodes(peer)[0] if told is None else Node(self.node_id, *told)

    def leader_of(self, log: PartitionLog) -> int:
        """Return the broker that leads a partition."""
        return NO_NODE if log.offline else self._leaders.of(log)

    def coordinator_of(self, group_id: str) -> int:
        """Return the leader of the group's partition of `__consumer_offsets`."""
        return self._leaders.of(self.brokers.offsets_log(group_id))

    def transaction_coordinator_of(self, transactional_id: str) -> int:
        """Return the leader of the id's partition of `__transaction_state`."""
        topic = self.brokers.shared.cluster.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_NODE
        return self._leaders.of(topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))])

    def refusal(self, log: PartitionLog, epoch: int) -> ErrorCode:
        """Return the error with which this broker refuses a partition; NONE if it serves the partition."""
        code = super().refusal(log, epoch)
        if code is ErrorCode.NONE and self._leaders.of(log) != self.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code


class NodeCoordination:
    """One broker's view of the cluster's coordinator: the groups that this broker coordinates."""

    def __init__(self, runtime: Runtime, leadership: NodeLeadership) -> None:
        self._runtime: Final = runtime
        self._leadership: Final = leadership
        # All brokers share these.
        self.journal: Final = runtime.journal
        self.reads: Final = runtime.reads
        self.group_limit: Final = runtime.group_limit
        self.shard_count: Final = runtime.shard_count
        self.next_token: Final = runtime.next_token
        self.begin_to_read: Final = runtime.begin_to_read
        self.serves: Final = runtime.serves
        self.session_timeout_ms: Final = runtime.session_timeout_ms
        self.counts_fetches: Final = runtime.counts_fetches
        self.lease_ms: Final = runtime.lease_ms
        self.abandon: Final = runtime.abandon
        self.hides_topics: Final = runtime.hides_topics
        self.pattern_sent: Final = runtime.pattern_sent
        self.index_of: Final = runtime.index_of
        self.offsets_of: Final = runtime.offsets_of

    def coordinates(self, group_id: str) -> bool:
        """Return whether this broker coordinates a group."""
        return self._is_here(group_id)

    def answer(self, request: Asker, command: commands.GroupCommand, translate: Translate) -> None:
        """Carry out a command for a group that is coordinated here."""
        if self._is_here(command.group_id):
            self._runtime.answer(request, command, translate)
        else:
            request.answer(translate(request, _refusal()))

    def release(self, command: commands.AnyHeartbeat, is_cut: bool) -> None:
        """End the hold of a heartbeat with its response, if the group is still coordinated here."""
        # The groups of another broker were answered when they moved there.
        if self._is_here(command.group_id):
            self._runtime.release(command, is_cut)

    def hold(self, request: Request, command: commands.ConsumerGroupHeartbeat, translate: Translate) -> bool:
        """Hold a heartbeat again, if the group is still coordinated here."""
        return self._is_here(command.group_id) and self._runtime.hold(request, command, translate)

    def renew(self, command: commands.ConsumerGroupHeartbeat) -> int | None:
        """Carry out a repeated heartbeat, if the group is still coordinated here."""
        return self._runtime.renew(command) if self._is_here(command.group_id) else None

    def ask(self, command: commands.GroupCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command for a group that is coordinated here."""
        if isinstance(command, _ANYWHERE) or self._is_here(command.group_id):
            self._runtime.ask(command, on_reply)
        else:
            on_reply(_refusal())

    def ask_shard(
        self,
        index: int,
        token: RequestToken,
        command: commands.Command,
        on_reply: Callable[[Any], None],
    ) -> None:
        """Carry out a command for a shard; groups coordinated by another broker are not listed."""
        brokers = self._leadership.brokers
        if isinstance(command, ListGroups) and not brokers.leads(self._leadership.node_id, index):
            on_reply(ListGroupsReply(groups=()))
        else:
            self._runtime.ask_shard(index, token, command, on_reply)

    def assignment_of(self, group_id: str, member_id: str) -> tuple[int, Grants] | None:
        """Return the epoch and the partitions of a member whose group is coordinated here."""
        return self._runtime.assignment_of(group_id, member_id) if self._is_here(group_id) else None

    def is_member(self, group_id: str, member_id: str) -> bool:
        """Return whether a group that is coordinated here has this member."""
        return self._is_here(group_id) and self._runtime.is_member(group_id, member_id)

    def member_signs(self, group_id: str, member_id: str) -> MemberSigns | None:
        """Return the latest signs of life of a member, if its group is coordinated here."""
        return self._runtime.member_signs(group_id, member_id) if self._is_here(group_id) else None

    def member_fetched(self, group_id: str, member_id: str, *, epoch: int = -1, is_over: bool = False) -> int:
        """Note a fetch of a member, if its group is coordinated here."""
        if not self._is_here(group_id):
            return 0
        return self._runtime.member_fetched(group_id, member_id, epoch=epoch, is_over=is_over)

    def member_disconnected(self, group_id: str, member_id: str) -> None:
        """Note a closed connection of a member, if its group is still coordinated here."""
        if self._is_here(group_id):
            self._runtime.member_disconnected(group_id, member_id)

    def _is_here(self, group_id: str) -> bool:
        return self._leadership.coordinator_of(group_id) == self._leadership.node_id


def _refusal(what: str = "group") -> commands.Refusal:
    return commands.Refusal(code=ErrorCode.NOT_COORDINATOR, message=f"another broker coordinates this {what}")


class NodeTransactions:
    """One broker's view of the cluster's transaction coordinator: the ids that this broker coordinates."""

    def __init__(self, transactions: TransactionCoordination, leadership: NodeLeadership) -> None:
        assert isinstance(transactions, Transactions), "the brokers share one"
        self._transactions: Final = transactions
        self._leadership: Final = leadership
        # These are asked of any broker, and are passed on to the coordinator.
        self.when_ready: Final = transactions.when_ready
        self.serves: Final = transactions.serves
        self.write_marker: Final = transactions.write_marker

    @property
    def is_ready(self) -> bool:
        """Return whether the coordinator is loaded."""
        return self._transactions.is_ready

    @property
    def runtime(self) -> TransactionRuntime | None:
        """Return the coordinator that all brokers share; `None` until a client has asked for it."""
        return self._transactions.runtime

    def answer(self, request: Asker, command: TransactionCommand, translate: Translate) -> None:
        """Carry out a client's command for an id that is coordinated here."""
        if self._is_here(command.transactional_id):
            self._transactions.answer(request, command, translate)
        else:
            request.answer(translate(request, _refusal("transactional id")))

    def ask_here(self, command: TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command for an id that is coordinated here."""
        if self._is_here(command.transactional_id):
            self._transactions.ask(command, on_reply)
        else:
            on_reply(_refusal("transactional id"))

    def ask(self, command: TransactionCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command by the broker that coordinates the id, if it runs."""
        if self._leadership.transaction_coordinator_of(command.transactional_id) == NO_NODE:
            on_reply(_refusal("transactional id"))
        else:
            self._transactions.ask(command, on_reply)

    def add(self, command: AddPartitions, then: Callable[[ErrorCode], None]) -> None:
        """Add one partition to a transaction by the broker that coordinates it, if it runs."""
        if self._leadership.transaction_coordinator_of(command.transactional_id) == NO_NODE:
            then(ErrorCode.NOT_COORDINATOR)
        else:
            self._transactions.add(command, then)

    def before_append(self, log: PartitionLog, batch: TransactionalBatch, then: OnKnown) -> None:
        """Call `then` when the coordinator, if it runs, knows of the partition of a batch."""
        if self._leadership.transaction_coordinator_of(batch.transactional_id) == NO_NODE:
            then(ErrorCode.NOT_ENOUGH_REPLICAS, False)
        else:
            self._transactions.before_append(log, batch, then)

    def list_transactions(self, command: ListCommand, take: OnListed, complete: Callable[[], None]) -> None:
        """Ask each shard that this broker coordinates for its transactions."""
        topic = self._leadership.brokers.shared.cluster.topic(TRANSACTIONS_TOPIC)
        logs = () if topic is None else topic.partitions
        own = self._leadership.node_id
        self._transactions.list_shards(
            command, take, complete, is_listed=lambda index: self._leadership.leader_of(logs[index]) == own
        )

    def _is_here(self, transactional_id: str) -> bool:
        return self._leadership.transaction_coordinator_of(transactional_id) == self._leadership.node_id


class ClusterNode:
    """One broker: its address, and its listener while it runs."""

    def __init__(self, brokers: Brokers, settings: BrokerSettings) -> None:
        self.brokers: Final = brokers
        self.node_id: Final = settings.node_id
        self._settings: Final = settings
        #: Listener -> the address that it listens on or, once stopped, did.
        self.addresses = {each.name: (each.host, each.port) for each in settings.listeners}
        #: Listener -> the address that its clients are told instead.
        self.advertised: Final[dict[str, tuple[str, int]]] = {}
        #: `None` until the first start.
        self.leadership: NodeLeadership | None = None
        #: The policy by which its heartbeats are held; `None`: that of its settings.
        self.delayed_heartbeats: DelayedHeartbeats | None = None
        #: The clock of this broker alone; `None`: that of all.
        self.clock: WallClock | None = None
        #: The part that sends members updates by fetches; `None`: the broker's own.
        self.membership_updates: Callable[[Coordination, Callable[[MemberKey], None]], MembershipUpdates] | None = None
        self._listeners: Listeners | None = None
        #: Its parts that the others do not share; `None` until the first start.
        self.context: BrokerContext | None = None

    @property
    def host(self) -> str:
        """The host of the first listener."""
        return next(iter(self.addresses.values()))[0]

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.addresses.values()))[1]

    async def start(self, host: str | None, port: int | None) -> None:
        """Listen on the former addresses; the first listener on `host` and `port`, 0 for a free port."""
        first = self._settings.listeners[0].name
        addresses = {
            **self.addresses,
            first: (self.host if host is None else host, self.port if port is None else port),
        }
        listeners = tuple(moved(each, *addresses[each.name]) for each in self._settings.listeners)
        settings = replace(self._settings, listeners=listeners, values=dict(self._settings.values))
        bound = self.brokers.listen(settings)
        try:
            leadership, opened = self._prepare(settings)
        except BaseException:
            for each in bound:
                each.close()
            raise
        try:
            await opened.start(bound)
        except BaseException:
            opened.abort()
            raise
        self.leadership, self._listeners = leadership, opened
        self.addresses = leadership.addresses

    def _prepare(self, settings: BrokerSettings) -> tuple[NodeLeadership, Listeners]:
        """Create the parts of this broker that the others do not share, and its listeners."""
        leadership = NodeLeadership(self, settings)
        shared = self.brokers.shared
        context = BrokerContext(
            settings=settings,
            clock=self.clock or shared.clock,
            loop=shared.loop,
            store=shared.store,
            most_connections=settings.values["max.connections"],
            cluster=shared.cluster,
            broker_configs=shared.broker_configs,
            leadership=leadership,
            durability=shared.durability,
            disk_full=shared.disk_full,
            purgatory=shared.purgatory,
            runtime=NodeCoordination(self.brokers.runtime, leadership),
            transactions=NodeTransactions(shared.transactions, leadership),
            removals=shared.removals,
            acls=shared.acls,
            capabilities=shared.capabilities,
            revocations=shared.revocations,
        )
        self.context = context
        shared.broker_configs.follow(settings)
        if self.delayed_heartbeats is not None:
            context.delayed_heartbeats = self.delayed_heartbeats
        if self.membership_updates is not None:
            context.membership_updates = self.membership_updates(context.runtime, shared.purgatory.tell_member)
            context.membership_updates.grants = context.member_grants
        return leadership, Listeners(context)

    async def stop(self) -> None:
        """Send the responses of handled requests, then close."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            listeners.finish()
            listeners.close_connections()
            await listeners.wait_closed()

    def kill(self) -> None:
        """Close at once and abandon the requests in progress."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            listeners.abort()

    def advertise(self, listener: str, address: tuple[str, int] | None) -> None:
        """Advertise another address to clients of a listener from now on; `None`: the true one again."""
        if address is None:
            self.advertised.pop(listener, None)
        else:
            self.advertised[listener] = address


class Brokers:
    """The brokers of one cluster over their shared state."""

    def __init__(
        self,
        shared: BrokerContext,
        runtime: Runtime,
        settings: Sequence[BrokerSettings],
        *,
        listen: Callable[[BrokerSettings], list[Any]] = listen_on_all,
    ) -> None:
        """Create the brokers of `settings`.

        `listen`: opens a socket for each listener, real ones or those of a simulated loop.
        """
        self.listen: Final = listen
        self.shared: Final = shared
        self.runtime: Final = runtime
        self.leaders: Final = Leaders([each.node_id for each in settings])
        self.nodes: Final = {each.node_id: ClusterNode(self, each) for each in settings}
        #: What the coordinators tell the leaders of owners.
        self.ownership: Final = OwnershipLinks(shared.loop)
        runtime.ownership.principal_of = self._principal_of
        runtime.tell_leaders(self.ownership)
        if isinstance(shared.transactions, Transactions):
            shared.transactions.is_led = lambda log: self.leaders.of(log) != NO_NODE
        on_deleted = shared.cluster.on_deleted

        def forget(log: PartitionLog) -> None:
            self.leaders.forget(log)
            on_deleted(log)

        shared.cluster.on_deleted = forget

    def _principal_of(self, group_id: str, member_id: str) -> str:
        contexts = [node.context for node in self.nodes.values() if node.context is not None]
        found = (context.member_connections.principal_of(group_id, member_id) for context in contexts)
        return next(filter(None, found), "")

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return a partition's log, `None` if topic or partition do not exist."""
        return self.shared.cluster.partition(self.shared.cluster.topic(topic), partition)

    def offsets_log(self, group_id: str) -> PartitionLog:
        """Return the log of the partition that stores a group."""
        log = self.log(OFFSETS_TOPIC, self.runtime.index_of(group_id))
        assert log is not None
        return log

    def leads(self, node_id: int, index: int) -> bool:
        """Return whether a broker coordinates the groups of a shard."""
        log = self.log(OFFSETS_TOPIC, index)
        return log is not None and self.leaders.of(log) == node_id

    async def start(self, node_id: int, host: str | None, port: int | None) -> None:
        """Start a broker, by default at its former address; it leads partitions that have no leader."""
        await self.nodes[node_id].start(host, port)
        context = self.nodes[node_id].context
        assert context is not None
        self.ownership.joined(node_id, context.ownership)
        self.leaders.running.add(node_id)
        for log in self.leaders.led_by(node_id):
            self.move(log, node_id)

    async def stop(self, node_id: int, *, hand_over: bool) -> None:
        """Stop a broker after its open requests have got their responses."""
        self._leave(node_id, hand_over=hand_over)
        await self.nodes[node_id].stop()

    def kill(self, node_id: int, *, hand_over: bool) -> None:
        """Kill a broker at once."""
        self.nodes[node_id].kill()
        self._leave(node_id, hand_over=hand_over)

    def move(self, log: PartitionLog, node_id: int) -> None:
        """Move a partition's leadership to another broker.

        For a partition of `__consumer_offsets`, that broker then coordinates the partition's groups.
        """
        self.leaders.elect(log, node_id)
        if log.topic == OFFSETS_TOPIC:
            self.runtime.hand_over(log.partition)
        elif log.topic == TRANSACTIONS_TOPIC and isinstance(self.shared.transactions, Transactions):
            self.shared.transactions.hand_over(log.partition)
        self.shared.purgatory.notify(log)

    async def close(self) -> None:
        """Stop every broker; their shared state is kept."""
        for node_id in sorted(self.leaders.running):
            await self.stop(node_id, hand_over=False)

    def _leave(self, node_id: int, *, hand_over: bool) -> None:
        for topic in self.shared.cluster.topics.values():
            for log in topic.partitions:
                self.leaders.of(log)
        self.leaders.running.discard(node_id)
        self.ownership.left(node_id)
        if hand_over and self.leaders.running:
            for log in self.leaders.led_by(node_id):
                self.move(log, self.leaders.successor(log.partition))

"""The parts of one broker that every request can reach, put together once by `server`.

`Request` is here as well, since each API takes both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from kohort.base.clock import WallClock, in_milliseconds
from kohort.broker.access.authorization import Authorization
from kohort.broker.access.capabilities import Capabilities
from kohort.broker.access.logins import Logins
from kohort.broker.batch_validation import BatchValidation
from kohort.broker.connections.admission import quotas_of, rates_of
from kohort.broker.connections.idle_timeouts import IdleTimeouts, WatchedConnection
from kohort.broker.connections.memberconnections import MemberConnections
from kohort.broker.connections.request import Request
from kohort.broker.durability import DiskFull, Durability
from kohort.broker.fetch.claims import Claims, RefusedReads, grant_verifier
from kohort.broker.fetch.fetchsessions import FetchSessions, trim_heap
from kohort.broker.fetch.ownership import OwnershipTable
from kohort.broker.fetch.purgatory import Purgatory
from kohort.broker.groups.coordination import Coordination
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeats
from kohort.broker.groups.grants import MemberGrants
from kohort.broker.groups.membership_updates import MembershipUpdates
from kohort.broker.groups.waiting_rights import RightsExamination
from kohort.broker.limits.client_quotas import ClientQuotas, QuotaLimits
from kohort.broker.limits.memory import AnswerMemory, ByteBudget, ParkedBytes
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.producer_ids import MOST_PRODUCERS, ProducerExpiry, ProducerIds
from kohort.broker.schedules import FileRemovals
from kohort.broker.scheduling import COLD_READERS, BlockingWork, CooperativeWork, FairQueue, LoopWatch
from kohort.broker.topics.acls import AccessControlLists
from kohort.broker.topics.configs import BrokerConfigs
from kohort.broker.topics.leadership import Leadership
from kohort.broker.topics.metadata import Cluster
from kohort.broker.topics.revocations import Revocations
from kohort.broker.topics.topic_operations import TopicRate
from kohort.broker.transactions.coordination import TransactionCoordination
from kohort.ids import TopicId
from kohort.storage.store import Store

__all__ = ["BrokerContext", "Request"]


class BrokerContext:
    """The parts of one running broker."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: WallClock,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        most_connections: int,
        cluster: Cluster,
        broker_configs: BrokerConfigs,
        leadership: Leadership,
        durability: Durability,
        disk_full: DiskFull,
        purgatory: Purgatory,
        runtime: Coordination,
        transactions: TransactionCoordination,
        watch: LoopWatch | None = None,
        removals: FileRemovals | None = None,
        acls: AccessControlLists | None = None,
        capabilities: Capabilities | None = None,
        revocations: Revocations | None = None,
    ) -> None:
        self.settings: Final = settings
        self.acls, self.authorization = acls, Authorization() if acls is None else acls.authorization
        self.clock: Final = clock
        self.started_ms: Final = clock.now_ms() - clock.stepped_ms
        #: Limit -> how often connections reached it since the start; other limits are counted by their own parts.
        self.reached: Final[Counter[str]] = Counter()
        #: A watch that nothing reads, if the turns of the loop are not measured.
        self.watch: Final = watch or LoopWatch(clock)
        self.loop, self.store = loop, store
        self.cluster, self.broker_configs = cluster, broker_configs
        self.leadership, self.durability = leadership, durability
        self.purgatory, self.runtime = purgatory, runtime
        self.transactions: Final = transactions
        self._admit_clients(capabilities, revocations)
        self.fetch_sessions: Final = FetchSessions(settings.values["max.incremental.fetch.session.cache.slots"])
        self.cooperative_work: Final = CooperativeWork(loop)
        self.fair_queue: Final = FairQueue(loop)
        self.answer_memory: Final = AnswerMemory(loop, store.fs.held)
        self.cold_reads: Final = BlockingWork(loop, threads=COLD_READERS, name="kohort-read")
        #: One batch at a time: its decompressed records may be long.
        self.unfolding: Final = BlockingWork(loop, threads=1, name="kohort-unfold")
        self.batch_validation: Final = BatchValidation(loop)
        self.producer_expiry: Final = ProducerExpiry(loop, store, clock, limit=MOST_PRODUCERS)
        self.removals: Final = removals or FileRemovals(loop, store.fs)
        self.disk_full: Final = disk_full
        self.new_topics: Final = TopicRate(clock, settings.values["auto.create.topics.per.minute"])
        self.producer_ids: Final = ProducerIds(lambda then, done: cluster.work.ask([cluster.producer_ids(then, done)]))
        self.byte_budget: Final = ByteBudget(settings.values["queued.max.request.bytes"])
        self.parked: Final = ParkedBytes(self.byte_budget.limit_bytes)
        self.member_connections: Final = MemberConnections(runtime.member_disconnected)
        self.delayed_heartbeats = DelayedHeartbeats(settings.values, clock)
        self.membership_updates = MembershipUpdates(runtime, purgatory.tell_member, self.member_connections)
        self._last_connection_number, self.connections = 0, set[WatchedConnection]()
        self._limit_clients(cluster.quota_limits, most_connections)
        self._follow_ownership()
        self.authorization.examiners.append(RightsExamination(loop, self.connections).begin)
        #: Set when the last connection closes.
        self.all_closed: Final = asyncio.Event()

    def _admit_clients(self, capabilities: Capabilities | None, revocations: Revocations | None) -> None:
        """Log clients in by users and by tokens; brokers of a cluster share both arguments."""
        store, clock = self.store, self.clock
        directory = None if store.fs.volatile else store.directory
        self.capabilities = Capabilities(directory, clock.now_ms) if capabilities is None else capabilities
        self.logins = Logins(
            self.loop, self.settings.listeners, clock, changes=store.changes, rights=self.authorization,
            capabilities=self.capabilities,
        )  # fmt: skip
        self.revocations = Revocations(store.changes, clock.now_ms) if revocations is None else revocations
        self.capabilities.is_revoked = self.revocations.is_revoked
        self.capabilities.has_revoked = lambda: len(self.revocations) > 0
        self.revocations.followers.add(self)

    def tokens_revoked(self) -> None:
        """End the connections of revoked tokens, and the waiting fetches by grants that were."""
        self.capabilities.edition += 1
        self.logins.end_tokens()
        for claim in self.claims.end(self.revocations.is_revoked):
            # Fetches under way ask again, and those that wait are answered.
            self.ownership.edition += 1
            for topic_id, partitions in (claim.partitions or {}).items():
                topic = self.cluster.topic_by_id(topic_id)
                for partition in () if topic is None else range(len(topic.partitions)):
                    if partition in partitions:
                        self._wake_fetches(topic_id, partition)

    def _limit_clients(self, limits: QuotaLimits, most_connections: int) -> None:
        """Count connections by the broker's options, and measure clients by the cluster's quotas."""
        settings = self.settings
        idle_ms = settings.values["connections.max.idle.ms"]
        self.idle_timeouts = IdleTimeouts(self.loop, self.connections, self.byte_budget, max_idle_ms=idle_ms)
        self.connection_quotas = quotas_of(settings, self.loop.time, most_connections, self.idle_timeouts)
        self.client_quotas = ClientQuotas(limits, settings.values)
        self.connection_rates = rates_of(settings, limits)

    def _follow_ownership(self) -> None:
        """Know whose fetches are, and which partitions they must not read any more."""
        #: The time of a clock that never goes back, ms.
        self.monotonic_ms = in_milliseconds(self.loop.time)
        self.ownership = OwnershipTable(self._wake_fetches)
        self.claims = Claims(grant_verifier(lambda: self.capabilities.keys))
        self.member_grants = MemberGrants(self.runtime, self.clock, self.monotonic_ms, self.capabilities)
        self.membership_updates.grants = self.member_grants
        self.refused_reads = RefusedReads(self.clock)

    def _wake_fetches(self, topic_id: TopicId, partition: int) -> None:
        """Have the waiting fetches of a partition look whether they may still read it."""
        log = self.cluster.partition(self.cluster.topic_by_id(topic_id), partition)
        if log is not None:
            self.purgatory.notify(log)

    def next_connection_number(self) -> int:
        """Return a number above those of all earlier connections."""
        self._last_connection_number += 1
        return self._last_connection_number

    def close_connections(self, is_meant: Callable[[WatchedConnection], bool], reason: str) -> int:
        """Close the connections that are meant, and log the reason for each; return their number."""
        meant = [connection for connection in self.connections if is_meant(connection)]
        for connection in meant:
            connection.give_up(reason)
        return len(meant)

    def forget(self, connection: WatchedConnection) -> None:
        """Forget a closed connection."""
        self.connections.discard(connection)
        self.claims.forget(connection)
        if self.fetch_sessions.forget(connection):
            self.cold_reads.submit(trim_heap, lambda _: None)
        if not self.connections:
            self.all_closed.set()

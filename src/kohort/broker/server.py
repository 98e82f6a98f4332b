"""One broker: opens the store, rebuilds the coordinator, listens, and stops cleanly.

Laws: no request is answered before the coordinator is rebuilt; a clean stop answers what can be answered, syncs, and
leaves the mark of a clean shutdown; a broker that failed leaves none.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kohort.base import without_collections
from kohort.base.clock import SystemClock, WallClock
from kohort.broker.access.logins import prepare_users
from kohort.broker.connections.sockets import BrokerStartError, is_loopback, lacks, listen_on_all
from kohort.broker.context import BrokerContext
from kohort.broker.dispatch import Route
from kohort.broker.durability import DiskFull, Durability, tell_relaxed
from kohort.broker.fetch.purgatory import Purgatory
from kohort.broker.groups.journallog import JournalLog
from kohort.broker.groups.ownership_messages import OwnLeader
from kohort.broker.groups.runtime import Runtime
from kohort.broker.limits import connection_quotas
from kohort.broker.limits.memory import memory_limit_bytes
from kohort.broker.listener import Listeners
from kohort.broker.log_cleaner import LogCleaner
from kohort.broker.options.listeners import address
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.broker.schedules import Checkpointer, LogRetention, OffsetRetention, Scrubber
from kohort.broker.scheduling import LoopWatch, WatchedSelector
from kohort.broker.topics.acls import AccessControlLists
from kohort.broker.topics.configs import BrokerConfigs
from kohort.broker.topics.leadership import Leadership
from kohort.broker.topics.metadata import Cluster
from kohort.broker.transactions.coordination import Transactions
from kohort.errors import KohortError
from kohort.ids import OFFSETS_TOPIC
from kohort.journal.ring import Journal
from kohort.records.kernel_form import log_kernels
from kohort.storage.files.fs import DiskFileSystem, FileSystem
from kohort.storage.recovery import RecoveryReport
from kohort.storage.store import Store

if TYPE_CHECKING:
    from kohort.broker.http import HttpMaker, HttpServing

__all__ = ["BrokerStartError", "Server", "new_event_loop", "run_broker", "serve"]

log = logging.getLogger("kohort.broker")

#: Where max.connections is not configured, only a lower number of possible connections is logged.
FEW_CONNECTIONS: Final = 1_000
#: Objects, and younger collections, after which the collector looks (`gc.set_threshold`); 700, 10 and 10 by itself.
COLLECTED_AFTER: Final = (20_000, 10, 100)
#: After a block of this size was freed, glibc keeps up to twice as much freed memory instead of giving it back at once.
FREED_ONCE_BYTES: Final = 4 << 20
#: The warning about a listener that other machines can reach, with what it lacks.
_OPEN: Final = (
    "event=open_to_network address=%s listener=%s reason='without %s: hosts that reach this address may read, write "
    "and delete, or listen in' action='secure it, listen on 127.0.0.1, or let a firewall choose the clients'"
)


class Server:
    """A broker on the running loop."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: WallClock | None = None,
        outlives_brokers: bool = False,
        watch: LoopWatch | None = None,
        fs: FileSystem | None = None,
        http_maker: HttpMaker | None = None,
    ) -> None:
        """Prepare the broker.

        `outlives_brokers`: data in memory stays for the next broker, as if it were on disk.
        `fs` has the data directory; `None` stands for the file system of this machine.
        `http_maker` makes what speaks HTTP, where the settings ask for it; `None`: the small server of `http.py`.
        """
        self._http_maker: Final = http_maker
        self._fs: Final = fs
        # Some values change while the broker runs.
        settings = self._settings = replace(settings, values=dict(settings.values))
        self._is_kept: Final = outlives_brokers or settings.data_dir is not None
        self._clock: Final[WallClock] = clock or SystemClock()
        self._watch: Final = watch
        self._context: BrokerContext | None = None
        self._runtime: Runtime | None = None
        self._transactions: Transactions | None = None
        self._listeners: Listeners | None = None
        self._http: HttpServing | None = None
        self._compactor: LogCleaner | None = None
        self._checkpointer: Checkpointer | None = None
        self._scrubber: Scrubber | None = None
        self._retention: list[OffsetRetention | LogRetention] = []
        self._journal_log: JournalLog | None = None
        self._finished: Final = asyncio.Event()
        #: Why the broker cannot go on, `None` while it can.
        self.failure: Exception | None = None
        #: Name of each listener -> the address listened on; the ports are the real ones once it has started.
        self.addresses = {each.name: (each.host, each.port) for each in settings.listeners}

    @property
    def host(self) -> str:
        """The host of the first listener."""
        return next(iter(self.addresses.values()))[0]

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self.addresses.values()))[1]

    @property
    def bootstrap_servers(self) -> str:
        """The first listener's HOST:PORT, as clients take it."""
        return address(self.host, self.port)

    @property
    def runtime(self) -> Runtime:
        """The coordinator of this broker, once it is open."""
        assert self._runtime is not None
        return self._runtime

    @property
    def cluster(self) -> Cluster:
        """The topics of this broker, once it is open."""
        assert self._context is not None
        return self._context.cluster

    async def start(self) -> None:
        """Open everything and listen; on an error, close everything and raise it."""
        # Else each batch compressed by zstd has a context mapped, filled by 40 page faults and unmapped.
        bytearray(FREED_ONCE_BYTES)
        # Bind first: a port in use is found out before the data directory is opened.
        bound, http = listen_on_all(self._settings, speaks_http=True), self._settings.http_listener
        with contextlib.ExitStack() as closing:
            for each in bound:
                closing.enter_context(each)
            context = self.open()
            try:
                # The certificates of those with TLS are loaded here.
                self._listeners = Listeners(context)
            except BaseException:
                await self.stop()
                raise
            closing.pop_all()
        spoken = bound.pop() if http is not None else None
        try:
            await self._listeners.start(bound)
            if spoken is not None:
                await self._start_http(context, spoken)
        except BaseException:
            if spoken is not None:
                spoken.close()
            await self.stop()
            raise
        self.addresses = dict(context.leadership.addresses)
        if http is not None and spoken is not None:
            self.addresses[http.name] = http.host, spoken.getsockname()[1]
        for listener, listening in zip(self._settings.listeners, bound, strict=True):
            told = address(*self.addresses[listener.name])
            if lacks(listener) and not is_loopback(listening.getsockname()[0]):
                log.warning(_OPEN, told, listener.name, lacks(listener))
            log.info("event=started address=%s listener=%s data_dir=%s", told, listener.name, self._settings.data_dir)

    async def _start_http(self, context: BrokerContext, bound: socket.socket) -> None:
        # A broker without HTTP does not pay for these imports.
        from kohort.broker.http import HttpServer
        from kohort.broker.metrics import paths_of

        paths, make = paths_of(context, self.runtime, lambda: self.failure), self._http_maker
        self._http = HttpServer(paths) if make is None else make(paths, dict(context.leadership.addresses))
        assert self._listeners is not None
        self._listeners.further_sockets = self._http.sockets
        await self._http.start(bound)

    def open(self) -> BrokerContext:
        """Open everything except the listener; on an error, close everything and raise it."""
        store = self._open_store()
        try:
            context = self._context = self._put_together(store)
        except BaseException:
            store.close(clean=False)
            raise
        values = self._settings.values
        self._compactor = LogCleaner(
            context.loop,
            context.store,
            self._clock,
            backoff_ms=values["log.cleaner.backoff.ms"],
            dedupe_buffer_bytes=values["log.cleaner.dedupe.buffer.size"],
        )
        self._compactor.start()
        offsets_ms, logs_ms = values["offsets.retention.check.interval.ms"], values["log.retention.check.interval.ms"]
        self._retention = [
            OffsetRetention(context.loop, self.runtime, interval_ms=offsets_ms),
            LogRetention(context.loop, context.store, self._clock, context.removals, interval_ms=logs_ms),
        ]
        for each in self._retention:
            each.start()
        context.producer_expiry.start(
            expiration_ms=values["producer.id.expiration.ms"],
            interval_ms=values["producer.id.expiration.check.interval.ms"],
        )
        self._checkpointer = Checkpointer(
            context.loop, context.store, interval_ms=values["log.flush.offset.checkpoint.interval.ms"]
        )
        self._checkpointer.start()
        self._scrubber = Scrubber(context.loop, context.store, bytes_per_second=values["log.scrub.bytes.per.second"])
        self._scrubber.start()
        return context

    def hide_from_collector(self) -> None:
        """Exclude the broker's long-lived objects from garbage collection, in a process of its own."""
        assert self._context is not None
        # With 10,000 partitions each collection took 60 ms, in which no request was answered.
        self._context.store.changes.after_many = gc.freeze
        gc.freeze()
        # A request of many rows makes many objects and soon forgets them all; to look for circles among them again and
        # again, as often as Python does by itself, took a fifth of its time.
        gc.set_threshold(*COLLECTED_AFTER)

    def intercept(self, through: Callable[[Route], Route] | None) -> None:
        """Replace the routes of requests by those that `through` makes of them, for tests; `None`: no more."""
        assert self._listeners is not None and self._context is not None
        self._listeners.routes.pass_through(through)
        for connection in self._context.connections:
            # A heartbeat or a fetch that its client sends again is carried out without a route.
            connection.examine_rights()

    def time_passed(self, by_ms: int) -> None:
        """Do all due work after a test has set the broker's clock forward by so much; call it on the loop."""
        self.runtime.time_passed(by_ms)
        if self._transactions is not None:
            self._transactions.time_passed(by_ms)
        for each in self._retention:
            each.look_now()

    def request_stop(self) -> None:
        """Let `wait` return; call it on the loop."""
        self._finished.set()

    async def wait(self) -> None:
        """Wait until a stop is requested; raise the error that made the broker fail."""
        await self._finished.wait()
        if self.failure is not None:
            raise self.failure

    async def stop(self) -> None:
        """Stop listening, answer the open requests, make everything durable and close."""
        context = self._context
        if context is None:
            return
        self._context = None
        for each in self._retention:
            each.stop()
        if self._http is not None:
            self._http.stop()
        if self._listeners is not None:
            self._listeners.finish()
        if self.failure is None:
            # Topic changes that were requested before the stop are still answered.
            await context.cluster.work.drain()
        context.cluster.work.stop()
        # Held heartbeats are answered now, or their clients would wait for a broker that is gone.
        self.runtime.release_all()
        self.runtime.stop()
        if self._transactions is not None:
            self._transactions.stop()
        if self._journal_log is not None and self.failure is None:
            self._journal_log.stop()
        context.purgatory.release_all()
        if self.failure is None:
            # Answers that wait for a sync leave when it is done.
            await context.durability.drain()
        if self._listeners is not None:
            self._listeners.close_connections()
        if self._compactor is not None:
            await self._compactor.stop()
        if self._listeners is not None:
            await self._listeners.wait_closed()
        for writer in (self._checkpointer, self._scrubber):
            if writer is not None:
                writer.stop()
        context.producer_expiry.stop()
        context.removals.stop()
        context.answer_memory.stop()
        context.batch_validation.stop()
        context.durability.stop()
        context.cold_reads.stop()
        context.unfolding.stop()
        context.store.close(clean=self.failure is None)
        log.info("event=stopped address=%s clean=%s", self.bootstrap_servers, self.failure is None)

    def _open_store(self) -> Store:
        log_kernels()
        settings = self._settings
        defaults, cluster_id = settings.topic_defaults(), settings.values["cluster.id"]
        if settings.data_dir is None:
            limit_bytes = memory_limit_bytes(settings.values["memory.limit.bytes"])
            return Store.in_memory(defaults, cluster_id=cluster_id, node_id=settings.node_id, limit_bytes=limit_bytes)
        most_connections = settings.values["max.connections"]
        shares = connection_quotas.shares(most_connections, has_files=True)
        fs = self._fs or DiskFileSystem(most_open=shares.files)
        with without_collections():
            identity = {"cluster_id": cluster_id, "node_id": settings.node_id}
            store = Store.open(settings.data_dir, settings=defaults, fs=fs, **identity)
        _tell_recovery(store.recovery)
        tell_relaxed(store)
        return store

    def _put_together(self, store: Store) -> BrokerContext:
        loop = asyncio.get_running_loop()
        settings, clock = self._settings, self._clock
        purgatory = Purgatory(loop)
        # The failure may come from a thread: of a sync, or of a change of topics.
        store.fs.health.on_failure = lambda failure: self._post(loop, failure)
        disk_full = DiskFull(clock)
        durability = Durability(loop, on_readable=purgatory.notify, on_failure=self._fail, disk_full=disk_full)
        journal = Journal(limit=settings.values["journal.ring.rows"])
        runtime = self._runtime = Runtime(loop, clock, durability, on_failure=self._fail, journal=journal)
        runtime.group_limit.most = settings.values["max.groups"]
        broker_configs = BrokerConfigs(settings, store.changes)
        cluster = Cluster(store, settings)
        acls = AccessControlLists(settings, store.changes, loop)
        runtime.hides_topics = acls.authorization.is_on
        acls.authorization.examiners.append(runtime.sights_changed)
        self._start_journal(cluster, durability, journal)
        offsets_topic = cluster.topic(OFFSETS_TOPIC) or cluster.create_offsets_topic()
        written = self._journal_log
        runtime.start(
            settings.groups,
            list(offsets_topic.partitions),
            cluster.image,
            look_since_ms=None if written is None else written.look_since_ms,
            told_ms=None if written is None else written.told_ms,
        )
        transactions = self._transactions = Transactions(
            loop, clock, durability, cluster, runtime, on_failure=self._fail
        )
        cluster.on_change = runtime.topics_changed
        runtime.measure = cluster.measure
        cluster.on_deleted = durability.forget
        prepare_users(store.changes, settings.listeners, settings.first_users)
        cluster.work.begin(loop, is_beside=not store.fs.volatile, on_failure=self._fail)
        context = BrokerContext(
            settings=settings,
            clock=clock,
            loop=loop,
            store=store,
            most_connections=self._most_connections(),
            cluster=cluster,
            broker_configs=broker_configs,
            leadership=Leadership(settings),
            durability=durability,
            disk_full=disk_full,
            purgatory=purgatory,
            runtime=runtime,
            transactions=transactions,
            watch=self._watch,
            acls=acls,
        )
        # Before any client is served, what was decided before a crash is carried out.
        transactions.start(context.producer_ids.take)
        runtime.ownership.principal_of = context.member_connections.principal_of
        runtime.tell_leaders(OwnLeader(context.ownership, context.monotonic_ms))
        return context

    def _most_connections(self) -> int:
        """Return `max.connections`, lowered to the available descriptors."""
        settings = self._settings
        wanted = settings.values["max.connections"]
        has_files = settings.data_dir is not None
        most = connection_quotas.shares(wanted, has_files=has_files).connections
        if most < (FEW_CONNECTIONS if wanted == BROKER_OPTIONS.option("max.connections").default else wanted):
            log.warning("event=max_connections_lowered from=%d to=%d reason='descriptors; see ulimit -n'", wanted, most)
        return most

    def _start_journal(self, cluster: Cluster, durability: Durability, journal: Journal) -> None:
        """Keep the journal in its topic if the store outlives the broker."""
        values = self._settings.values
        if not self._is_kept or not journal.is_on or not values["journal.topic.enable"]:
            return
        self._journal_log = JournalLog(
            asyncio.get_running_loop(),
            cluster,
            durability,
            self._clock,
            journal,
            retention_ms=values["journal.topic.retention.ms"],
            retention_bytes=values["journal.topic.retention.bytes"],
        )
        self._journal_log.start()
        self.runtime.count_from(self._journal_log.last_cause)

    def _post(self, loop: asyncio.AbstractEventLoop, failure: Exception) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._fail, failure)

    def _fail(self, error: Exception) -> None:
        """Stop the broker, keeping the data on disk: the coordinator or the log cannot be trusted any more."""
        if self.failure is None:
            self.failure = error
            # Only unexpected errors are logged with a traceback.
            trace = None if isinstance(error, KohortError) else error
            log.critical("event=broker_failed error=%r", str(error), exc_info=trace)
            self._finished.set()


def _tell_recovery(report: RecoveryReport) -> None:
    """Log the findings of the recovery, and the records that are lost."""
    if not report.is_clean:
        numbers = report.partitions, report.bytes_checked, len(report.cuts)
        log.warning("event=recovered partitions=%d bytes_checked=%d cuts=%d", *numbers)
    if report.catalog_cut is not None and report.is_clean:
        # A clean stop leaves no half-written change: the change was complete, and acknowledged.
        log.error("event=catalog_damaged %s; the last change of topics is lost", report.catalog_cut)
    elif report.catalog_cut is not None:
        log.warning("event=catalog_cut %s; the broker stopped while that was written", report.catalog_cut)
    for cut in report.cuts:
        log.warning("event=tail_cut %s", cut)
    for folder, run in report.mended_epochs:
        log.warning("event=epochs_mended partition=%s %s; their batches said something else", folder, run)
    for folder, reason in report.offline:
        advice = "all others are served; see the system's log and kohort log check, mend the disk, start again"
        log.error("event=partition_offline partition=%s %s; %s", folder, reason, advice)
    for folder, size_bytes, begin in report.shortened:
        words = "that a clean stop had left are gone from its beginning, which is offset"
        log.error("event=records_missing partition=%s %d bytes %s %d now", folder, size_bytes, words, begin)
    for folder, hole in report.holes:
        log.log(
            logging.INFO if hole.is_settled else logging.ERROR, "event=records_missing partition=%s %s", folder, hole
        )
    for folder, each in report.hanging:
        advice = "readers of committed records stop there; end it with kohort transactions abort, or kohort log repair"
        log.error("event=transaction_hanging partition=%s %s; %s", folder, each, advice)


async def run_broker(
    settings: BrokerSettings,
    *,
    on_ready: Callable[[Server], None],
    clock: WallClock | None = None,
    watch: LoopWatch | None = None,
    http_maker: HttpMaker | None = None,
) -> None:
    """Serve until the task is cancelled or `Server.request_stop` is called, then stop cleanly.

    Raises what kept the broker from starting, or what made it fail while it ran.
    """
    server = Server(settings, clock=clock, watch=watch, http_maker=http_maker)
    await server.start()
    try:
        on_ready(server)
        await server.wait()
    finally:
        await server.stop()


# The event loop that a broker runs on: uvloop's where it is installed, asyncio's otherwise.


def new_event_loop(watch: LoopWatch) -> asyncio.AbstractEventLoop:
    """Return a new loop that does not run yet; `watch` sees its turns if it is asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop(WatchedSelector(watch))
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def serve(
    settings: BrokerSettings,
    *,
    on_ready: Callable[[Server, asyncio.AbstractEventLoop], None],
    stop_on: Sequence[signal.Signals] = (),
    clock: WallClock | None = None,
    http_maker: HttpMaker | None = None,
) -> None:
    """Run a broker on a new loop until it is asked to stop; raise the error that made it fail.

    Args:
        settings: the broker's options.
        on_ready: called on the loop once clients can connect.
        stop_on: signals that stop the broker; only in the main thread.
        clock: the broker's; `None`: that of this machine.
        http_maker: makes what speaks HTTP, where the settings ask for it; `None`: a small server of metrics.
    """
    watch = LoopWatch()
    loop = new_event_loop(watch)

    def announce(server: Server) -> None:
        for number in stop_on:
            loop.add_signal_handler(number, server.request_stop)
        on_ready(server, loop)

    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(
            run_broker(settings, on_ready=announce, clock=clock, watch=watch, http_maker=http_maker)
        )
    finally:
        with contextlib.suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_asyncgens())
        asyncio.set_event_loop(None)
        loop.close()

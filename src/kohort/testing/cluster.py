"""Several brokers in this process, for tests that need more than one.

Laws: a call that cannot take effect raises an error of one sentence, and has changed nothing. When a call returns,
every broker responds accordingly.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kohort.broker.embedded import stop_at_exit
from kohort.broker.options.listeners import address
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.leadership import NO_NODE
from kohort.errors import ConfigError, StateError, UnknownTopicError

if TYPE_CHECKING:
    from kohort.broker.server import Server
    from kohort.storage.partitions.partition import PartitionLog
    from kohort.testing.clusternodes import Brokers

#: Most brokers of a cluster; each is a listening socket on one thread.
MOST_BROKERS: Final = 100
#: How long a call may take that is carried out on the brokers' thread.
CALL_TIMEOUT_SECONDS: Final = 30.0
#: Configs that each broker has of its own, or that a cluster in memory does not have.
_NOT_SHARED: Final = (
    "node.id",
    "broker.id",
    "log.dir",
    "log.dirs",
)

Result = TypeVar("Result")


class Cluster:
    """Brokers in one process, numbered from 1, with leaders and coordinators that can be moved.

    >>> with Cluster(3) as cluster:
    ...     cluster.brokers, cluster.coordinator("billing") in cluster.brokers
    ((1, 2, 3), True)

    This is for tests only: the brokers share one metadata catalogue, one log and one coordinator in memory, so nothing
    is replicated and nothing acknowledged is lost. But each has its own address and connections, and serves only the
    partitions that it leads. Clients see the same as with Apache Kafka: NOT_LEADER_OR_FOLLOWER, NOT_COORDINATOR,
    FENCED_LEADER_EPOCH, leader epochs that grow with every move, and new coordinators that have read the log.

    By default broker 1 + p mod n leads partition p of every topic, and a group is coordinated by the leader of its
    partition of `__consumer_offsets`. Methods may be called from any thread.

    Args:
        brokers: number of brokers, 1 to 100.
        host: the address that all of them listen on; by default that of `listeners`, or else 127.0.0.1.
        config: broker configs by Kafka's names, dotted or with underscores, the same for all; in `listeners` and
            `advertised.listeners` each port must be 0, so that each broker gets a port of its own.
    """

    def __init__(
        self, brokers: int = 3, *, host: str | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        if isinstance(brokers, bool) or not isinstance(brokers, int) or not 1 <= brokers <= MOST_BROKERS:
            raise ConfigError(f"brokers cannot be {brokers!r}: 1 to {MOST_BROKERS} are expected")
        if isinstance(config, Mapping):
            for name in config:
                if str(name).replace("_", ".") in _NOT_SHARED:
                    raise ConfigError(f"{name} cannot be set for a Cluster: its brokers share everything but that")
        self._settings: Final = [_settings_of(number, host, config) for number in range(1, brokers + 1)]
        #: Everything below is set while the cluster is open.
        self._brokers: Brokers | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._forget_exit: Callable[[], None] = lambda: None
        self._failure: BaseException | None = None

    def __enter__(self) -> Cluster:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> Cluster:
        """Start every broker; clients can connect when this returns."""
        if self._thread is not None:
            raise StateError("this cluster is open already")
        ready: Future[None] = Future()
        self._failure = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="kohort-cluster", daemon=True)
        self._thread.start()
        try:
            ready.result(CALL_TIMEOUT_SECONDS)
        except BaseException:
            self._thread = None
            raise
        self._forget_exit = stop_at_exit(self._thread, self._request_stop)
        return self

    def close(self) -> None:
        """Stop every broker and drop their data; no effect if the cluster is not open.

        If the cluster has failed, raise the error that made it fail.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._request_stop()
        thread.join()
        self._forget_exit()
        self._brokers = None
        if self._failure is not None:
            raise self._failure

    @property
    def brokers(self) -> tuple[int, ...]:
        """The numbers of all brokers, those that are stopped included."""
        return tuple(settings.node_id for settings in self._settings)

    @property
    def running(self) -> tuple[int, ...]:
        """The numbers of the brokers that are running."""
        return self._ask(lambda brokers: tuple(sorted(brokers.leaders.running)))

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of every broker's first listener, as `bootstrap.servers`; stopped brokers included."""
        return ",".join(self.address(broker) for broker in self.brokers)

    def bootstrap_of(self, listener: str) -> str:
        """Return HOST:PORT of every broker's listener of this name, as `bootstrap.servers`."""
        return ",".join(self.address(broker, listener) for broker in self.brokers)

    def address(self, broker: int, listener: str | None = None) -> str:
        """Return the present or last HOST:PORT of a broker's listener, by default of its first one."""
        node_id, name = self._known(broker), self._listener(listener)
        return self._ask(lambda brokers: address(*brokers.nodes[node_id].addresses[name]))

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the broker that leads a partition; `None` while there is none."""
        return self._ask(lambda brokers: _none_if_away(brokers.leaders.of(_log(brokers, topic, partition))))

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return a partition's leader epoch: the number of elections after the first leader."""
        return self._ask(lambda brokers: _log(brokers, topic, partition).leader_epoch)

    def coordinator(self, group: str) -> int | None:
        """Return the broker that coordinates a group, which need not exist; `None` while there is none."""
        _check_text("group", group)
        return self._ask(lambda brokers: _none_if_away(brokers.leaders.of(brokers.offsets_log(group))))

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Make a broker the leader of a partition.

        Requests that wait at the former leader are refused at once. The leader epoch grows, even if `to` leads already.
        """
        node_id = self._known(to)
        self._ask(lambda brokers: brokers.move(_log(brokers, topic, partition), _running(brokers, node_id)))

    def move_coordinator(self, group: str, to: int) -> None:
        """Make a broker the coordinator of a group, and, as in Kafka, of all groups in its offsets partition.

        The new coordinator has read the log: members, assignments and offsets are unchanged, open joins of classic
        groups are lost, and sessions begin anew.
        """
        node_id = self._known(to)
        _check_text("group", group)
        self._ask(lambda brokers: brokers.move(brokers.offsets_log(group), _running(brokers, node_id)))

    def stop(self, broker: int, *, hand_over: bool = True) -> None:
        """Stop a broker cleanly: requests in progress get their responses.

        `hand_over`: let the others lead its partitions, as replicas would. `False`: they have no leader until it is
        started again, as without replicas: LEADER_NOT_AVAILABLE, COORDINATOR_NOT_AVAILABLE.
        """
        node_id = self._known(broker)

        async def stop(brokers: Brokers) -> None:
            await brokers.stop(_running(brokers, node_id), hand_over=hand_over)

        self._do(stop)

    def kill(self, broker: int, *, hand_over: bool = True) -> None:
        """Kill a broker: its connections are cut, and open requests get no response.

        Such a request may have been carried out or not. `hand_over`: as for `stop`; the others take over without delay.
        """
        node_id = self._known(broker)
        self._ask(lambda brokers: brokers.kill(_running(brokers, node_id), hand_over=hand_over))

    def start(self, broker: int, *, host: str | None = None, port: int | None = None) -> None:
        """Start a stopped or killed broker again; leadership that was moved does not return to it.

        `host`, `port`: of its first listener, port 0 for a free one; `None`: the former ones.
        """
        node_id = self._known(broker)
        asked = BrokerSettings.of({}, host=host, port=0 if port is None else port)

        async def start(brokers: Brokers) -> None:
            if node_id in brokers.leaders.running:
                raise StateError(f"broker {node_id} is running already")
            await brokers.start(node_id, None if host is None else asked.host, None if port is None else asked.port)

        self._do(start)

    def advertise(self, broker: int, host: str | None, port: int | None = None, *, listener: str | None = None) -> None:
        """Advertise another address for a broker than its own: that of a proxy, or a wrong one.

        `host`, `port`: both `None` for the true address again. `listener`: whose clients get it, by default the first.
        """
        node_id, name = self._known(broker), self._listener(listener)
        if (host is None) != (port is None):
            raise ConfigError("host and port are expected together, or neither of them")
        told = None
        if host is not None and port is not None:
            asked = BrokerSettings.of({}, host=host, port=port)
            told = asked.host, asked.port
        self._ask(lambda brokers: brokers.nodes[node_id].advertise(name, told))

    def _known(self, broker: int) -> int:
        if isinstance(broker, bool) or not isinstance(broker, int):
            raise TypeError(f"a broker is named by its number, not by {type(broker).__name__}: cluster.stop(1)")
        if broker not in self.brokers:
            raise ConfigError(f"there is no broker {broker}: {self.brokers[0]} to {self.brokers[-1]} are expected")
        return broker

    def _listener(self, name: str | None) -> str:
        """Return the name of a listener in upper case; `None`: the first listener."""
        known = [each.name for each in self._settings[0].listeners]
        if name is None:
            return known[0]
        _check_text("listener", name)
        if name.upper() not in known:
            raise ConfigError(f"there is no listener {name}: one of {', '.join(known)} is expected")
        return name.upper()

    def _ask(self, call: Callable[[Brokers], Result]) -> Result:
        """Call a function on the brokers' thread."""

        async def carry_out(brokers: Brokers) -> Result:
            return call(brokers)

        return self._do(carry_out)

    def _do(self, call: Callable[[Brokers], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine on the brokers' thread."""
        brokers, loop = self._brokers, self._loop
        if self._thread is None or brokers is None or loop is None:
            raise StateError("this cluster is not open; use it in a with statement or call open()")
        if loop.is_closed():
            raise StateError("the brokers of this cluster have failed; close() says why")
        return asyncio.run_coroutine_threadsafe(call(brokers), loop).result(CALL_TIMEOUT_SECONDS)

    def _request_stop(self) -> None:
        loop, server = self._loop, self._server
        assert loop is not None and server is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: the brokers have failed before
            loop.call_soon_threadsafe(server.request_stop)

    def _run(self, ready: Future[None]) -> None:
        from kohort.broker.scheduling import LoopWatch
        from kohort.broker.server import new_event_loop

        loop = self._loop = new_event_loop(LoopWatch())
        try:
            loop.run_until_complete(self._serve(ready))
        except BaseException as failure:  # handed to the thread that asked
            if ready.done():
                self._failure = failure
            else:
                ready.set_exception(failure)
        finally:
            loop.close()

    async def _serve(self, ready: Future[None]) -> None:
        from kohort.broker.server import Server
        from kohort.testing.clusternodes import Brokers

        server = self._server = Server(self._settings[0], outlives_brokers=True)
        shared = server.open()
        brokers = Brokers(shared, server.runtime, self._settings)
        try:
            for node_id in self.brokers:
                await brokers.start(node_id, None, None)
            self._brokers = brokers
            ready.set_result(None)
            await server.wait()
        finally:
            await brokers.close()
            await server.stop()


def _settings_of(number: int, host: str | None, config: Mapping[str, object] | None) -> BrokerSettings:
    if not isinstance(config, Mapping | None):
        return BrokerSettings.of(config)
    own = {**(config or {}), "node.id": number}
    if own.get("listeners") is None:
        settings = BrokerSettings.of(own, host=host or "127.0.0.1", port=0)
    else:
        settings = BrokerSettings.of(own, host=host)
    for each in settings.listeners:
        if each.port:
            raise ConfigError(f"listeners has {each.url} for every broker of a Cluster: port 0 is expected")
        if each.advertised_port is not None:
            words = f"advertised.listeners has port {each.advertised_port} of {each.name}"
            raise ConfigError(f"{words} for every broker of a Cluster: port 0 is expected")
    return settings


def _log(brokers: Brokers, topic: str, partition: int) -> PartitionLog:
    _check_text("topic", topic)
    if isinstance(partition, bool) or not isinstance(partition, int):
        raise TypeError(f"a partition is a number, not {type(partition).__name__}: cluster.leader('orders', 0)")
    log = brokers.log(topic, partition)
    if log is not None:
        return log
    found = brokers.shared.cluster.topic(topic)
    raise UnknownTopicError(topic) if found is None else UnknownTopicError(topic, partition, len(found.partitions))


def _running(brokers: Brokers, node_id: int) -> int:
    if node_id not in brokers.leaders.running:
        raise StateError(f"broker {node_id} is not running")
    return node_id


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, not {type(value).__name__}")


def _none_if_away(node_id: int) -> int | None:
    return None if node_id == NO_NODE else node_id

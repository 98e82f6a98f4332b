"""A broker for tests: with injectable protocol faults, a clock that can be set forward, and group controls.

Laws: a reset removes all topics and groups of earlier tests, or raises an error that states the obstacle. Functions
that need the broker in this process skip or raise with any other broker, and with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NoReturn

import kohort
from kohort.base.clock import SystemClock
from kohort.broker.embedded import Broker as EmbeddedBroker
from kohort.errors import ConfigError, KohortError, StateError
from kohort.testing.faults import ProtocolFaults

if TYPE_CHECKING:
    from kohort.broker.server import Server
    from kohort.testing.group import TestedGroup

#: Members of a test rarely start at one moment, so that a group does not wait for more of them.
DEFAULTS: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.window.ms": 0,
}
#: A clock is set forward by less than this, some thirty years.
LONGEST_SECONDS: Final = 1e9


class LivingMembersError(KohortError):
    """A reset was refused because members of an earlier test are still in their groups."""


class _ForwardClock(SystemClock):
    """This machine's clock, and how far a test has set it forward."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class TestClock:
    """The clock of a broker in a test; clients keep their own."""

    __test__ = False

    def __init__(self, clock: _ForwardClock, carry_out: Callable[[Callable[[Server], None]], None]) -> None:
        self._clock: Final = clock
        self._carry_out: Final = carry_out

    def now_ms(self) -> int:
        """Return the broker's time, milliseconds since 1970."""
        return self._clock.now_ms()

    def advance(self, seconds: float) -> None:
        """Set the broker's clock forward; everything due by then is done before this returns.

        Sessions end, rebalances and static registrations time out, offsets expire, old segments are deleted. A live
        client notices with its next request, as if its heartbeats had been lost: its own timers do not run faster.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < LONGEST_SECONDS:
            raise ConfigError(f"the clock cannot be advanced by {seconds!r} seconds: more than 0 are expected")
        by_ms = round(seconds * 1000)

        def pass_time(server: Server) -> None:
            self._clock.ahead_ms += by_ms
            server.time_passed(by_ms)

        self._carry_out(pass_time)


class ClusterElsewhere:
    """A cluster outside of this process: Apache Kafka, or a broker that the workers of a run share.

    Nothing is reset in it, because it may have topics and groups of other users.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers: Final = bootstrap_servers
        self._admin: kohort.Admin | None = None

    @property
    def admin(self) -> kohort.Admin:
        """An admin client, made when it is first asked for."""
        if self._admin is None:
            self._admin = kohort.Admin(bootstrap_servers=self.bootstrap_servers)
        return self._admin

    def group(self, group_id: str) -> TestedGroup:
        """Return a group, which need not exist yet."""
        from kohort.testing.group import TestedGroup

        return TestedGroup(self.admin, group_id, bootstrap_servers=self.bootstrap_servers)

    @property
    def faults(self) -> ProtocolFaults:
        """Skip the test: faults cannot be injected into another cluster."""
        _skip("faults")

    @property
    def clock(self) -> TestClock:
        """Skip the test: the clock of another cluster cannot be set."""
        _skip("clock")

    def close(self) -> None:
        """Close the admin client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


def _skip(what: str) -> NoReturn:
    import pytest

    pytest.skip(f"{what}: this needs kohort's own broker in the test's process")


class Broker(EmbeddedBroker):
    """A broker for tests.

    >>> with Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         _ = producer.send("orders", value="1").result(10)
    ...     broker.reset()
    ...     [topic.name for topic in broker.admin.list_topics() if not topic.is_internal]
    []

    The arguments are those of `kohort.Broker`; without `process` it has `faults` and `clock`.
    """

    def __init__(
        self,
        *,
        data_dir: str | PathLike[str] | None = None,
        port: int | None = None,
        host: str | None = None,
        process: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> None:
        config = {**DEFAULTS, **(config or {})} if isinstance(config, Mapping | None) else config
        super().__init__(data_dir=data_dir, port=port, host=host, process=process, config=config)
        self._clock = self._forward = _ForwardClock()
        self._admin: kohort.Admin | None = None
        #: Errors, delays, lost and torn answers in the protocol.
        self.faults: Final = ProtocolFaults(self._carry_out)
        #: The broker's clock, which can be set forward.
        self.clock: Final = TestClock(self._forward, self._carry_out)

    def stop(self) -> None:
        """Stop the broker cleanly, and raise the error that made it fail while it ran."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
        super().stop()

    @property
    def admin(self) -> kohort.Admin:
        """An admin client, made when it is first asked for, closed with the broker."""
        if self._admin is None:
            if self._running is None:
                raise StateError("this broker does not run")
            self._admin = kohort.Admin(bootstrap_servers=self.bootstrap_servers)
        return self._admin

    def group(self, group_id: str) -> TestedGroup:
        """Return a group, which need not exist yet."""
        from kohort.testing.group import TestedGroup

        faults = None if self.process_id is not None else self.faults
        return TestedGroup(self.admin, group_id, bootstrap_servers=self.bootstrap_servers, faults=faults)

    def reset(self) -> None:
        """Delete every group and every topic, and remove all faults, as if the broker had just started.

        Raises:
            LivingMembersError: groups have members; they are named, and nothing was deleted.
        """
        if self.process_id is None:
            self._carry_out(_begin_reset).result(30)
        else:
            names = [row.group_id for row in self.admin.list_groups()]
            described = self.admin.describe_groups(names).items()
            _check_empty((name, getattr(each, "members", ())) for name, each in described)
            self.admin.delete_groups(names)
            self.admin.delete_topics([row.name for row in self.admin.list_topics() if not row.is_internal])
        self.faults.clear()


def _check_empty(groups: Iterable[tuple[str, Iterable[Any]]]) -> None:
    """Raise `LivingMembersError` if groups have members."""
    alive = [f"{each.client_id or each.member_id} of group {name}" for name, members in groups for each in members]
    if alive:
        raise LivingMembersError(
            f"members of an earlier test are in their groups: {', '.join(alive)}. Close the consumers of a test at its "
            "end; a consumer that was killed is a member until its session is over"
        )


def _begin_reset(server: Server) -> Future[None]:
    """Begin to delete every group and topic, on the broker's thread; the future is done when they are gone."""
    from kohort.coordinator.commands import Done
    from kohort.coordinator.commands.admin import DeleteGroup

    runtime, cluster, done = server.runtime, server.cluster, Future[None]()
    states = [shard.groups for shard in runtime.shards]
    groups: list[tuple[str, Any]] = [
        each for state in states for each in (*state.consumer.items(), *state.classic.items())
    ]
    _check_empty((name, group.members.values()) for name, group in groups)
    names = [name for index in range(len(states)) for name in runtime.group_ids(index)]
    topics = [topic for topic in cluster.topics.values() if not topic.is_internal]
    ends: list[object] = []

    def end(outcome: object) -> None:
        ends.append(outcome)
        if len(ends) > len(names) + len(topics):
            failed = [each for each in ends if each is not None and not isinstance(each, Done)]
            done.set_exception(StateError(f"the reset failed: {failed[0]}")) if failed else done.set_result(None)

    for name in names:
        token = runtime.next_token()
        runtime.ask(DeleteGroup(cause=token, request=token, group_id=name), end)
    cluster.work.ask(cluster.deletion(topic, lambda: None, end) for topic in topics)
    end(None)
    return done

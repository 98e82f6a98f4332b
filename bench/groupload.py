"""Many KIP-848 members as a stock client would play them, without a client's weight: one asyncio loop, raw frames.

A member joins with epoch 0, takes what it is given, says at once what it owns when that has changed, and otherwise
heartbeats when the interval that the broker announced is over, counted from the heartbeat before. Members may call
themselves by a stock client's name (KIP-511): then our broker holds their heartbeats while it has nothing to say.
"""

from __future__ import annotations

import asyncio
import resource
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from kohort.wire.codec import decoder
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import (
    ClientAssignor,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.registry import ApiKey
from load import frame

VERSION = 1
#: Where its number stands in a request.
_NUMBER_AT = 8
_decode = decoder(ConsumerGroupHeartbeatResponse, VERSION)


@contextmanager
def many_files() -> Iterator[None]:
    """As many open connections as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Connection(asyncio.Protocol):
    """Each answer goes to who sent its request, in whatever order they come, as librdkafka has it.

    `software`: what its client calls itself, empty: nothing.
    """

    def __init__(self, software: str = "") -> None:
        self._software = software
        #: Number of a request -> who takes its answer, which is still to come.
        self.waiting: dict[int, Callable[[memoryview], None]] = {}
        self._last_number = 0
        self._buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.lost: Callable[[], None] = lambda: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self._software:
            self.introduce(self._software)

    def introduce(self, software: str) -> None:
        """Say what the client is."""
        request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        self.send(frame(ApiKey.API_VERSIONS, 3, request), lambda _: None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()

    def send(self, data: bytes, then: Callable[[memoryview], None]) -> None:
        assert self.transport is not None
        self._last_number += 1
        self.waiting[self._last_number] = then
        self.transport.write(data[:_NUMBER_AT] + self._last_number.to_bytes(4) + data[_NUMBER_AT + 4 :])

    @property
    def descriptor(self) -> int:
        """The socket's, for the generator."""
        assert self.transport is not None
        found: int = self.transport.get_extra_info("socket").fileno()
        return found

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= 4:
            size = 4 + struct.unpack_from(">i", self._buffer, position)[0]
            if len(self._buffer) - position < size:
                break
            answer = memoryview(bytes(self._buffer[position + 4 : position + size]))
            position += size
            self.waiting.pop(int.from_bytes(answer[:4]))(answer)
        if position:
            del self._buffer[:position]


class Member:
    """One member; `owned` is (topic id, partition), `revoked` counts what it had to give away."""

    def __init__(self, load: GroupLoad, connection: Connection) -> None:
        self._load = load
        self.connection = connection
        self._timer: asyncio.TimerHandle | None = None
        #: When the last heartbeat was sent, in the loop's time.
        self._sent_s = 0.0
        self.member_id = str(uuid4())
        self.epoch = 0
        self.owned: set[tuple[bytes, int]] = set()
        self.revoked = 0
        #: Answers in a row that said nothing new.
        self.quiet = 0
        self.is_gone = False

    def join(self) -> None:
        self._send(epoch=0, owned=[], is_full=True)

    def leave(self) -> None:
        """Say goodbye; nothing is sent after it."""
        self.is_gone = True
        if self._timer is not None:
            self._timer.cancel()
        self._send(epoch=-1, owned=None)
        self._load.members.remove(self)
        self._load.owned_count -= len(self.owned)

    def pause(self) -> None:
        """Heartbeat no more by itself."""
        if self._timer is not None:
            self._timer.cancel()

    def heartbeat_soon(self) -> None:
        """Now, if it does not wait for an answer: what it computes is told with the next one."""
        if self._timer is not None and self._timer.when() > self._load.loop.time():
            self._timer.cancel()
            self.heartbeat()

    def heartbeat(self) -> None:
        """One that says nothing new."""
        self._send(epoch=self.epoch, owned=None)

    def heartbeat_frame(self) -> bytes:
        """A heartbeat that says nothing new."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._load.group, member_id=self.member_id, member_epoch=self.epoch, rebalance_timeout_ms=-1
        )
        return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request)

    def _send(self, *, epoch: int, owned: Iterable[tuple[bytes, int]] | None, is_full: bool = False) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._load.group,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000 if is_full else -1,
            subscribed_topic_names=list(self._load.topics) if is_full else None,
            topic_partitions=None if owned is None else self._listed(owned),
            client_assignors=self._load.assignors if is_full else None,
        )
        self._sent_s = self._load.loop.time()
        self.connection.send(frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, VERSION, request), self._take)

    def _own(self, owned: set[tuple[bytes, int]]) -> None:
        self._load.owned_count += len(owned) - len(self.owned)
        self.owned = owned

    @staticmethod
    def _listed(owned: Iterable[tuple[bytes, int]]) -> list[Any]:
        from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions

        topics: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(owned):
            topics.setdefault(topic_id, []).append(partition)
        return [TopicPartitions(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]

    def _take(self, body: memoryview) -> None:
        if self.is_gone:
            return
        answer = _decode(body, 5)[0]
        if answer.error_code:
            self._load.errors[answer.error_code] = self._load.errors.get(answer.error_code, 0) + 1
            self._own(set())
            self.epoch = 0
            self._timer = self._load.loop.call_later(0.1, self.join)
            return
        if answer.should_compute_assignment:
            self._load.compute(self, answer.member_epoch)
        self.quiet = self.quiet + 1 if answer.member_epoch == self.epoch and answer.assignment is None else 0
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            new = {(row.topic_id, number) for row in answer.assignment.topic_partitions for number in row.partitions}
            if new != self.owned:
                self.revoked += len(self.owned - new)
                self._own(new)
                self._load.on_change()
                self._send(epoch=self.epoch, owned=new)
                return
        self._timer = self._load.loop.call_at(self._sent_s + answer.heartbeat_interval_ms / 1000, self.heartbeat)


class GroupLoad:
    """Members of one group, all of which subscribe to the same topics, spread over connections."""

    def __init__(self, port: int, topics: Sequence[str], partition_count: int, *, software: str = "") -> None:
        self._software = software
        self.loop = asyncio.get_running_loop()
        self.topics = topics
        self.group = f"bench-{uuid4().hex[:8]}"
        self.members: list[Member] = []
        self.errors: dict[int, int] = {}
        self.port = port
        self._partition_count = partition_count
        #: In the order in which they were opened.
        self.connections: list[Connection] = []
        #: What all members own together.
        self.owned_count = 0
        self._settled: asyncio.Future[None] | None = None
        #: What members say that they can compute by; `None`: nothing.
        self.assignors: list[ClientAssignor] | None = None

    def compute(self, member: Member, epoch: int) -> None:
        """A member is asked to compute an assignment, which happens to those alone that can."""
        raise AssertionError(f"{member.member_id} is asked to compute, and says nothing of assignors")

    async def connect(self, count: int) -> None:
        """Open `count` connections more."""
        for _ in range(count):
            await self._open()

    async def _open(self) -> Connection:
        _, connection = await self.loop.create_connection(partial(Connection, self._software), "127.0.0.1", self.port)
        self.connections.append(connection)
        return connection

    async def connect_and_join(self, count: int, *, over_s: float = 0.0) -> float:
        """That many members, each as soon as its connection is there; seconds until all have their share.

        They come evenly over a time, or all at once.
        """

        async def one(number: int) -> None:
            await asyncio.sleep(number / count * over_s)
            self._admit(await self._open())

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        await self.settle(within_s=120)
        return time.perf_counter() - began

    def add(self, connection_number: int) -> Member:
        """A new member that joins now."""
        return self._admit(self.connections[connection_number])

    def _admit(self, connection: Connection) -> Member:
        member = Member(self, connection)
        self.members.append(member)
        member.join()
        return member

    async def settle(self, within_s: float = 60.0) -> float:
        """Until every partition is owned, by one member each, evenly; seconds that it took."""
        began = time.perf_counter()
        if not self._is_settled():
            self._settled = self.loop.create_future()
            await asyncio.wait_for(self._settled, within_s)
        return time.perf_counter() - began

    async def rest(self) -> None:
        """Until all were told nothing new and nobody waits for an answer; then no member sends anything by itself."""
        await self._until(lambda: all(member.quiet for member in self.members) and not self._are_waiting())
        for member in self.members:
            member.pause()

    async def leave(self) -> None:
        """All say goodbye, so that the broker has nobody to wait for, and the connections are closed."""
        for member in list(self.members):
            member.leave()
        await self._until(lambda: not self._are_waiting())
        assert not self.errors, f"members were refused: {self.errors}"
        for connection in self.connections:
            assert connection.transport is not None
            connection.transport.abort()

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        # Nothing of this is measured.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _are_waiting(self) -> bool:
        return any(connection.waiting for connection in self.connections)

    def on_change(self) -> None:
        if self._settled is not None and not self._settled.done() and self._is_settled():
            self._settled.set_result(None)

    def _is_settled(self) -> bool:
        # A look at each member with each change would cost a large group more than its broker.
        if self.owned_count != self._partition_count:
            return False
        loads = [len(member.owned) for member in self.members]
        if max(loads) - min(loads) > 1:
            return False
        return len(set().union(*(member.owned for member in self.members))) == self._partition_count

"""A driver on the application's loop, with real machines and a real broker: no thread, nothing lost by giving up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.client.admin.admin_machine import AdminCloseAsked, AdminEvent, AdminMachine, Question, RequestAsked
from kohort.client.core.host import Host
from kohort.client.core.in_loop import InLoop
from kohort.client.options import ADMIN_OPTIONS, PRODUCER_OPTIONS, client_settings
from kohort.client.producer.context import sender_settings
from kohort.client.producer.core.producer_events import (
    FlushAsked,
    ProducerCloseAsked,
    ProducerEvent,
    RecordsSubmitted,
)
from kohort.client.producer.core.producer_machine import ProducerMachine
from kohort.client.producer.core.submission_kernels import Submissions
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortError, KohortTimeoutError, StateError
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse

HOUR_S = 3_600.0
WAIT_S = 20.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


def admin_host(address: str, machine: type[AdminMachine] = AdminMachine) -> InLoop[AdminEvent]:
    settings = client_settings(ADMIN_OPTIONS.parse({"bootstrap_servers": address}))
    return InLoop(machine(settings), settings, deliver=lambda _: None, what="admin client")


async def ask(host: InLoop[AdminEvent], timeout: float = HOUR_S) -> MetadataResponse:
    deadline_ms = host.deadline_ms(HOUR_S)
    answer = await host.call(
        lambda ticket: RequestAsked(
            ticket=ticket,
            deadline_ms=deadline_ms,
            question=Question(MetadataRequest(topics=[]), MetadataResponse, during="asking", codes=lambda _: []),
        ),
        timeout,
    )
    assert isinstance(answer, MetadataResponse)
    return answer


async def end(host: InLoop[Any]) -> None:
    host.stop()
    assert await host.join(WAIT_S)


class Sending:
    """A producer's machine on the running loop."""

    def __init__(self, address: str, *, linger_ms: int = 0) -> None:
        values = PRODUCER_OPTIONS.parse({"bootstrap_servers": address, "retries": 10})
        settings = client_settings(values)
        self._submissions = Submissions(wake_bytes=1)
        machine = ProducerMachine(
            settings,
            sender_settings(values),
            submissions=self._submissions,
            batch_bytes=16_384,
            linger_ms=linger_ms,
            is_idempotent=True,
            on_release=lambda _: None,
        )
        self.host: InLoop[ProducerEvent] = InLoop(
            machine,
            settings,
            deliver=lambda _: None,
            what="producer",
            farewell=lambda ticket, deadline_ms: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline_ms),
        )

    def send(self, topic: str, value: bytes) -> RecordFuture:
        record = RecordFuture(topic, None, value, 1_000, 100)
        record.partition = 0
        self._submissions.append(record)
        self.host.post(RecordsSubmitted())
        return record


def test_calls_are_answered_without_a_thread(address: str) -> None:
    """The machine, its connections and its timers are the loop's."""

    async def main() -> None:
        host: Host[AdminEvent] = admin_host(address)
        assert isinstance(host, InLoop)
        before = threading.active_count()
        answers = await asyncio.gather(*(ask(host) for _ in range(5)))
        assert [len(answer.brokers) for answer in answers] == [1] * 5
        assert threading.active_count() == before
        assert host.is_running
        await end(host)
        assert not host.is_running
        with pytest.raises(StateError, match="this admin client is closed"):
            await ask(host)

    asyncio.run(main())


def test_machine_may_end_by_itself(address: str) -> None:
    """As `close` has it; then there is nothing to stop."""

    async def main() -> None:
        host = admin_host(address)
        await ask(host)
        host.post(AdminCloseAsked())
        assert await host.join(WAIT_S)
        host.stop()

    asyncio.run(main())


def test_host_that_never_ran_has_nothing_to_end(address: str) -> None:
    async def main() -> None:
        await end(admin_host(address))

    asyncio.run(main())


def test_event_is_handled_in_a_round_of_its_own(address: str) -> None:
    """Whoever posts is not interrupted by what follows from it."""
    handled: list[object] = []

    class Watched(AdminMachine):
        def handle(self, event: Any, now_ms: int) -> Any:
            handled.append(event)
            return super().handle(event, now_ms)

    async def main() -> None:
        host = admin_host(address, Watched)
        for _ in range(3):
            host.post(AdminCloseAsked())
        assert handled == []
        await asyncio.sleep(0)
        assert handled == [AdminCloseAsked()], "after the first one it has ended"
        await end(host)

    asyncio.run(main())


def test_call_that_is_cancelled_costs_nothing_else(address: str) -> None:
    """Its answer comes all the same, to nobody."""

    async def main() -> None:
        host = admin_host(address)
        given_up = [asyncio.create_task(ask(host)) for _ in range(3)]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        assert (await ask(host)).brokers
        assert all(task.cancelled() for task in given_up)
        await end(host)

    asyncio.run(main())


def test_call_ends_with_its_time() -> None:
    """A broker that says nothing, and a caller that has no time."""

    async def main() -> None:
        held: list[Any] = []
        server = await asyncio.start_server(lambda *streams: held.append(streams), "127.0.0.1", 0)
        host = admin_host(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(KohortTimeoutError, match=r"did not finish within 0\.02 s"):
            await ask(host, 0.02)
        assert not await host.join(0.0)
        await end(host)
        server.close()
        for _, writer in held:
            writer.close()

    asyncio.run(main())


def test_error_of_the_machine_is_raised_by_the_call() -> None:
    """Nobody listens on port 1."""

    async def main() -> None:
        host = admin_host("127.0.0.1:1")
        with pytest.raises(KohortError, match="no broker can be reached"):
            await ask(host)
        await end(host)

    asyncio.run(main())


def test_one_loop_and_no_other(address: str) -> None:
    """Neither outside of any nor in a second one."""
    host = admin_host(address)
    with pytest.raises(StateError, match="works on an event loop only: call it in a coroutine"):
        host.post(AdminCloseAsked())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(ask(host))
    with pytest.raises(StateError, match="belongs to another event loop"):
        asyncio.run(ask(host))
    loop.run_until_complete(end(host))
    loop.close()


@pytest.mark.parametrize("place", ["handle", "next_deadline"])
@pytest.mark.logs_bugs
def test_failure_of_the_machine_is_every_calls(address: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    """Those that wait, and those that come later; the loop goes on."""

    class Failing(AdminMachine):
        def fail(self, *_: object) -> Any:
            raise ValueError("planted")

    setattr(Failing, place, Failing.fail)

    async def main() -> None:
        host = admin_host(address, Failing)
        for _ in range(2):
            with pytest.raises(StateError, match=r"has stopped after an internal error \(ValueError: planted\)"):
                await ask(host)
        with pytest.raises(StateError, match="planted"):
            host.raise_failure()
        await end(host)

    asyncio.run(main())
    assert caplog.text.count("its machine failed") == 1


def test_records_are_sent_and_flushed(address: str) -> None:
    async def main() -> list[Any]:
        sending = Sending(address, linger_ms=3_600_000)
        futures = [sending.send("in-loop", b"%d" % number) for number in range(100)]
        await sending.host.call(lambda ticket: FlushAsked(ticket=ticket), WAIT_S)
        await sending.host.call(lambda ticket: ProducerCloseAsked(ticket=ticket, deadline_ms=0), WAIT_S)
        await end(sending.host)
        return [future.result(0) for future in futures]

    assert [stored.offset for stored in asyncio.run(main())] == list(range(100))


@pytest.mark.parametrize("name", ["end", "exception"])
def test_what_nobody_closed_is_flushed_when_the_loop_ends(address: str, name: str) -> None:
    """`asyncio.run` ends the tasks first; what lingers is sent all the same, with a ResourceWarning."""

    async def main() -> None:
        sending = Sending(address, linger_ms=3_600_000)
        # Kept alive by nobody but the loop.
        sending.send(f"forgotten-{name}", b"one")
        await asyncio.sleep(0)
        if name == "exception":
            raise ValueError("the application's own")

    run: Callable[[], None] = lambda: asyncio.run(main())  # noqa: E731
    with pytest.warns(ResourceWarning, match="a producer was not closed: use it in an async with statement"):
        if name == "end":
            run()
        else:
            with pytest.raises(ValueError, match="own"):
                run()
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        partition = TopicPartition(f"forgotten-{name}", 0)
        assert consumer.end_offsets([partition]) == {partition: 1}


def test_retirement_needs_no_wait(address: str) -> None:
    """What `__del__` of a door does, on the loop."""

    async def main() -> None:
        sending = Sending(address, linger_ms=3_600_000)
        future = sending.send("retired", b"one")
        assert sending.host.retire(WAIT_S) is not None
        assert await sending.host.join(WAIT_S)
        assert future.result(0).offset == 0

    asyncio.run(main())


def test_loop_that_is_gone_is_told() -> None:
    """A loop that was closed without its own shutdown: nothing can be done any more, but it can be said."""
    loop = asyncio.new_event_loop()

    async def start() -> Sending:
        sending = Sending("127.0.0.1:1")
        sending.host.post(RecordsSubmitted())
        return sending

    sending = loop.run_until_complete(start())
    loop.close()

    assert not sending.host.is_running
    assert sending.host.retire(1.0) is None
    with pytest.warns(ResourceWarning, match="a producer was not closed"):
        sending.host.warn_unclosed()


def test_wait_that_is_cancelled_when_its_ticket_ends_is_cancelled(address: str) -> None:
    """Before Python 3.12 `asyncio.wait_for` forgets the one for the other, and whoever cancels waits for ever."""

    async def run() -> None:
        host = admin_host(address)
        await ask(host)
        ticket: Future[object] = Future()
        task = asyncio.get_running_loop().create_task(host.wait(ticket, HOUR_S))
        await asyncio.sleep(0)
        ticket.set_result(None)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await end(host)

    asyncio.run(run())

"""A machine that fails, wherever: everything that the application waits for ends with the cause, and calls raise it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.client.admin.admin_machine import AdminMachine
from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.client.producer.core.accumulator import Accumulator
from kohort.client.producer.core.producer_machine import ProducerMachine
from kohort.errors import StateError

pytestmark = pytest.mark.logs_bugs

WAIT_S = 20.0
PRODUCER = "kohort.client.producer.core.producer_machine.ProducerMachine"
CONSUMER = "kohort.client.consumer.core.consumer_machine.ConsumerMachine"
ADMIN = "kohort.client.admin.admin.AdminMachine"
Plant = Callable[..., None]


class PlantedError(Exception):
    """What the planted machines raise."""


def failing(machine: type[Any], event: str, *, is_late: bool = False) -> type[Any]:
    """The real machine, but for one kind of event: it raises in place of handling it, or (late) after that."""

    class Failing(machine):  # type: ignore[misc]
        def handle(self, what: object, now_ms: int) -> Any:
            actions = super().handle(what, now_ms) if is_late or type(what).__name__ != event else []
            if type(what).__name__ == event:
                raise PlantedError(f"planted in {event}")
            return actions

        def next_deadline(self) -> int | None:
            if event == "next_deadline":
                raise PlantedError("planted in next_deadline")
            return super().next_deadline()  # type: ignore[no-any-return]

    return Failing


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Each failure is one line of the log, whatever else."""
    yield
    lines = [record.getMessage() for record in caplog.get_records("call")]
    assert lines.count("the client stops: its machine failed") == 1


def assert_names_the_cause(error: BaseException | None, event: str) -> None:
    assert isinstance(error, StateError)
    assert isinstance(error.__cause__, PlantedError)
    assert f"has stopped after an internal error (PlantedError: planted in {event}); create a new one" in str(error)


def make_topic(address: str, name: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name)


@pytest.mark.large
@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "event", ["RecordsSubmitted", "FlushAsked", "ProducerCloseAsked", "ResponseReceived", "next_deadline"]
)
def test_every_record_ends_when_the_producers_machine_fails(
    address: str, event: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queued, in a batch, in flight: each future ends; send, flush and close raise what has happened."""
    monkeypatch.setattr(PRODUCER, failing(ProducerMachine, event, is_late=is_late))
    producer = kohort.Producer(bootstrap_servers=address, linger_ms=60_000 if event == "FlushAsked" else 5)
    futures: list[Future[Any]] = []
    ends: list[StateError] = []
    try:
        futures += [producer.send("failing", value=b"%d" % number) for number in range(700)]
        producer.flush(WAIT_S)
    except StateError as error:
        ends.append(error)
    try:
        producer.close(WAIT_S)
    except StateError as error:
        ends.append(error)
    done, pending = wait(futures, WAIT_S)

    assert pending == set()
    assert ends, "one of the calls says it"
    for error in [*ends, *(future.exception() for future in done if future.exception() is not None)]:
        assert_names_the_cause(error, event)
    with pytest.raises(StateError):
        producer.send("failing", value=b"late")
    producer.close()


def test_record_whose_linger_ends_in_a_failure_ends_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadline is an event like all others."""
    make_topic(address, "lingering")
    monkeypatch.setattr(PRODUCER, failing(ProducerMachine, "DeadlineReached"))
    producer = kohort.Producer(bootstrap_servers=address, linger_ms=200)

    assert_names_the_cause(producer.send("lingering", value=b"one").exception(WAIT_S), "DeadlineReached")


def test_records_that_are_being_sorted_end_too(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are no longer queued and in no batch yet when the accumulator fails."""

    def fail_at_the_second(_: Accumulator, __: list[object], start: int, ___: int) -> int:
        if start == 1:
            raise PlantedError("planted in add")
        return start

    make_topic(address, "sorting")
    monkeypatch.setattr(Accumulator, "add_run", fail_at_the_second)
    producer = kohort.Producer(bootstrap_servers=address, linger_ms=60_000, batch_size=1 << 20)
    futures = [producer.send("sorting", value=b"%d" % number) for number in range(5)]
    with pytest.raises(StateError, match="planted in add"):
        producer.flush(WAIT_S)

    for future in futures:
        assert_names_the_cause(future.exception(WAIT_S), "add")


def test_send_that_waits_for_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing gets room any more when nothing is sent any more."""
    monkeypatch.setattr(PRODUCER, failing(ProducerMachine, "RequestFailed"))
    with pytest.raises(StateError) as failure:
        # Nobody listens on port 1, and the refusal is what the machine fails at.
        producer = kohort.Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=200, linger_ms=0)
        for _ in range(10):
            producer.send("failing", value=bytes(100))

    assert_names_the_cause(failure.value, "RequestFailed")


def test_send_after_a_failure_never_goes_unsaid(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that the machine was not woken for would wait for ever."""
    monkeypatch.setattr(PRODUCER, failing(ProducerMachine, "ResponseReceived"))
    producer = kohort.Producer(bootstrap_servers=address)
    producer.send("failing", value=b"first").exception(WAIT_S)

    for _ in range(3):
        with pytest.raises(StateError) as failure:
            producer.send("failing", value=b"later")
        assert_names_the_cause(failure.value, "ResponseReceived")
    with pytest.raises(StateError, match="planted"):
        producer.flush()
    with pytest.raises(StateError, match="planted"):
        producer.close()


@pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("event", ["CommittedAsked", "ResponseReceived", "next_deadline"])
def test_question_of_a_consumer_ends_with_the_cause(
    address: str, event: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket ends although the machine has lost it."""
    monkeypatch.setattr(CONSUMER, failing(ConsumerMachine, event, is_late=is_late))
    consumer = kohort.Consumer(bootstrap_servers=address, group_id="failing", default_api_timeout_ms=3_600_000)
    with pytest.raises(StateError) as failure:
        consumer.committed([TopicPartition("failing", 0)])

    assert_names_the_cause(failure.value, event)
    with pytest.raises(StateError) as failure:
        consumer.subscribe(["failing"])
    assert_names_the_cause(failure.value, event)


@pytest.mark.parametrize("event", ["Subscribed", "Polled", "ResponseReceived"])
def test_poll_raises_what_the_machine_failed_with(address: str, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not when its timeout is over, and again at the next call."""
    monkeypatch.setattr(CONSUMER, failing(ConsumerMachine, event))
    consumer = kohort.Consumer(bootstrap_servers=address, group_id="failing")
    for _ in range(2):
        with pytest.raises(StateError) as failure:
            consumer.subscribe(["failing"])
            consumer.poll(3_600)
        assert_names_the_cause(failure.value, event)


@pytest.mark.parametrize("event", ["RequestAsked", "ResponseReceived", "next_deadline"])
def test_call_of_an_admin_client_ends_with_the_cause(address: str, event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the others; `close` says it, too."""
    monkeypatch.setattr(ADMIN, failing(AdminMachine, event))
    admin = kohort.Admin(bootstrap_servers=address)
    with pytest.raises(StateError) as failure:
        admin.list_topics()

    assert_names_the_cause(failure.value, event)
    with pytest.raises(StateError, match="planted"):
        admin.close()


def test_callback_that_ends_the_thread_ends_the_records(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sys.exit` in a callback of a future is no end of the program, but one of the thread."""
    producer = kohort.Producer(bootstrap_servers=address, linger_ms=0)
    is_set = threading.Event()

    def leave(_: Future[Any]) -> None:
        is_set.wait(WAIT_S)
        raise SystemExit("planted in a callback")

    producer.send("failing", value=b"first").add_done_callback(leave)
    later = [producer.send("failing", value=b"later") for _ in range(3)]
    is_set.set()

    assert {type(future.exception(WAIT_S)) for future in later} <= {StateError, type(None)}
    with pytest.raises(StateError, match=r"internal error \(SystemExit: planted in a callback\)"):
        producer.close()

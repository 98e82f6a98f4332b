"""Errors travel: between processes, as those of a pool or of Spark do, and as copies."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kohort
import kohort.errors
from kohort import OffsetRange, SentMany, TopicPartition
from kohort.cli.folders import FolderRefusedError
from kohort.console.access import FormError
from kohort.errors import (
    AdvertisedAddressError,
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    BrokersUnreachableError,
    BufferFullError,
    DeserializationError,
    ErrorCode,
    FencedError,
    ForeignProtocolError,
    GroupNotEmptyError,
    InvariantViolation,
    KohortError,
    LogTruncationError,
    MissingDependencyError,
    NotInHistoryError,
    NotKafkaError,
    PartlyDoneError,
    PartlySentError,
    ProducerFencedError,
    Refused,
    SerializationError,
    TransactionAbortableError,
    UnknownOptionError,
    UnknownTopicError,
    UnsupportedFeatureError,
)
from kohort.spark.driver.java import JavaNotFoundError
from kohort.spark.driver.starting import ReaderLateError
from kohort.spark.member.names import NameTakenError
from kohort.spark.offsets import RecordsLostError
from kohort.spark.sink import RowsNotAcknowledgedError, Stored

#: One of each that is not made of a sentence alone, with all that it may hold.
MADE: tuple[Exception, ...] = (
    Refused(ErrorCode.FENCED_MEMBER_EPOCH, "an older epoch"),
    InvariantViolation("one owner", ["a joined", "b joined"]),
    ForeignProtocolError("TLS"),
    FormError(403, "the form is of another session"),
    BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "one is missing", during="producing to orders-0"),
    BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION),
    AuthorizationError(
        ErrorCode.GROUP_AUTHORIZATION_FAILED, "no", operation="read", resource_type="group", name="g", during="reading"
    ),
    FencedError(ErrorCode.UNKNOWN_MEMBER_ID, "gone", group="billing", member="m-1", epoch=7, during="committing"),
    ProducerFencedError(ErrorCode.PRODUCER_FENCED, "gone", transactional_id="billing-1", during="committing"),
    TransactionAbortableError("billing-1", "a record was lost"),
    UnknownOptionError("grup_id", ["group_id", "client_id"], what="consumer option"),
    UnknownOptionError("x", (), others=["unknown option y"]),
    UnknownOptionError("ssl_cafile", (), what="consumer option", why="is not served yet: no TLS"),
    BrokersUnreachableError([("a:1", "Connection refused"), ("b:2", "no answer")]),
    NotKafkaError([("a:1", "it looks like HTTP")]),
    GroupNotEmptyError("billing", ["a", "b"], during="resetting the offsets of group billing"),
    AuthenticationError([("a:1", "the broker does not let this client in by PLAIN: wrong password")]),
    AdvertisedAddressError("a:1", [("b:2", "Connection refused")], "topic t is created, but "),
    UnsupportedFeatureError(ErrorCode.UNSUPPORTED_VERSION, "only kohort's broker moves", during="submitting moves"),
    UnknownTopicError("orders"),
    UnknownTopicError("orders", 7, 3),
    MissingDependencyError("pyarrow", "arrow"),
    BufferFullError(33_554_432, 60.0),
    FolderRefusedError(Path("somebody/s"), "is not the demo's own"),
    LogTruncationError("orders", 0, 9, 7),
    NotInHistoryError("billing", "rebalance 9", "it has 2-4"),
    PartlyDoneError("creating topics", {"a": 1}, {"b": BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, "b is there")}),
    PartlySentError(SentMany("orders", 1, (OffsetRange(0, 7, 1),)), 2, "late", True),
    SerializationError("orders", "value", "TypeError('a set cannot be sent')"),
    DeserializationError(TopicPartition("orders", 0), 7, "value", "ValueError('no JSON')"),
    NameTakenError("kohort-1a2b", "billing"),
    ReaderLateError("departures", 3),
    RecordsLostError(TopicPartition("orders", 0), 7, "the log begins at 9"),
    JavaNotFoundError([("JAVA_HOME", "/opt/java", "is Java 11")]),
    RowsNotAcknowledgedError(2, (Stored("orders", 0, 7, 8, 1),), "late", True),
)


def classes() -> Iterator[type[Exception]]:
    """Every class of errors.py, and what other rooms have derived from them."""
    for _, found in inspect.getmembers(kohort.errors, inspect.isclass):
        if issubclass(found, Exception) and found.__module__ == "kohort.errors":
            yield found
    for module in pkgutil.walk_packages(kohort.__path__, "kohort."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    yield from below(KohortError)


def below(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("kohort."):
            yield each
            yield from below(each)


def made() -> list[Exception]:
    """One of every class at least."""
    sentences = set(classes()) - {type(error) for error in MADE}
    return [
        *MADE,
        *(kind("what is wrong, and what to do") for kind in sorted(sentences, key=lambda kind: kind.__name__)),
    ]


@pytest.mark.parametrize("error", made(), ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "carry",
    [*(lambda error, version=version: pickle.loads(pickle.dumps(error, version)) for version in (2, 5)), copy.copy],
    ids=["pickled in version 2", "pickled in version 5", "copied"],
)
def test_error_is_the_same_on_the_other_side(error: Exception, carry: Callable[[Exception], Exception]) -> None:
    """Its class, its sentence, its fields, and what it says about trying again."""
    there = carry(error)

    assert type(there) is type(error)
    assert str(there) == str(error)
    # Errors that an error holds are not equal to others.
    assert (repr(there.args), repr(vars(there))) == (repr(error.args), repr(vars(error)))
    if isinstance(error, KohortError):
        assert isinstance(there, KohortError)
        assert (there.retriable, there.fatal) == (error.retriable, error.fatal)


def test_note_travels_along() -> None:
    """What `add_note` has added is part of it."""
    error = FencedError(ErrorCode.FENCED_MEMBER_EPOCH, group="billing", member="m-1", epoch=7)
    error.add_note("at the third attempt")

    assert pickle.loads(pickle.dumps(error)).__notes__ == ["at the third attempt"]

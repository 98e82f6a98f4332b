"""Every error of kohort: the protocol's codes, refusals on the wire, and exceptions for callers.

Laws: a refused request ends in an error code of the protocol (`Refused` has an `ErrorCode` and becomes a response);
a caller's error is an exception with typed fields that says what to do; a bug is an assertion with its history.
Source: Apache Kafka's error codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Callers import the codes from here, too.
from kohort.base.error_codes import ErrorCode as ErrorCode  # noqa: PLC0414
from kohort.ids import TopicPartition


class Refused(Exception):
    """A request is refused; raised while it is decided, and turned into a response. Nothing was changed."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class InvariantViolation(AssertionError):
    """A bug in kohort: an invariant did not hold. Never caught; `story` has the events that led to it."""

    def __init__(self, law: str, story: Sequence[object] = ()) -> None:
        super().__init__(law)
        self.law = law
        self.story = tuple(story)

    def __str__(self) -> str:
        return "\n".join([self.law, *(f"  {row}" for row in self.story)])


class KohortError(Exception):
    """Base of every exception that a caller of kohort may see."""

    #: Whether the same call may succeed later without a change.
    retriable: bool = False
    #: Whether the object that raised the error cannot be used any more.
    fatal: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        # Pickled by attributes, not by the constructor's arguments, which are not always kept.
        return _rebuild, (type(self), self.args), self.__dict__ or None


def _rebuild(kind: type[KohortError], args: tuple[object, ...]) -> KohortError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class PartlyDoneError(KohortError):
    """Only a part of a call's requests was carried out.

    Args:
        during: the call, e.g. "creating topics".
        done: each item that was done (a topic, a partition, ...) -> its part of the call's result.
        failed: each other item -> the reason, in the order requested; items in neither were not requested.
    """

    def __init__(self, during: str, done: Mapping[Any, Any], failed: Mapping[Any, KohortError]) -> None:
        super().__init__(during, done, failed)
        self.during = during
        self.done = dict(done)
        self.failed = dict(failed)
        self.retriable = all(error.retriable for error in self.failed.values())

    def __str__(self) -> str:
        total = len(self.done) + len(self.failed)
        done = f" ({_some([str(each) for each in self.done], ', ')})" if self.done else ""
        why = _some([f"{each}: {error}" for each, error in self.failed.items()], "; ")
        return f"{self.during}: {len(self.done)} of {total} done{done}, {len(self.failed)} not: {why}"


def _some(words: Sequence[str], between: str) -> str:
    """List the first three, and the number of the others."""
    rest = len(words) - 3
    return between.join([*words[:3], *([f"{rest} more"] if rest > 0 else [])])


class BrokerError(KohortError):
    """A broker answered with an error code.

    `message`: the text that the broker sent, or `None`. `during`: the failed action, e.g. "committing offsets of group
    orders".
    """

    def __init__(self, code: ErrorCode, message: str | None = None, *, during: str = "") -> None:
        super().__init__(code, message, during)
        self.code = code
        self.message = message
        self.during = during
        self.retriable = code.retriable

    def __str__(self) -> str:
        where = f" while {self.during}" if self.during else ""
        said = f": {self.message}" if self.message else ""
        return f"{self.code.name}{where}{said}"


class AuthorizationError(BrokerError):
    """The broker knows this user, and does not allow the requested operation.

    `operation`: the missing right, such as "read". `resource_type` and `name`: the resource, a "topic", "group",
    "cluster" or "transactional_id". All are empty if that is not known.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str | None = None,
        *,
        operation: str = "",
        resource_type: str = "",
        name: str = "",
        during: str = "",
    ) -> None:
        super().__init__(code, message, during=during)
        self.operation = operation
        self.resource_type = resource_type
        self.name = name

    def __str__(self) -> str:
        if not self.operation:
            return f"{super().__str__().rstrip('.')}; an administrator gives rights with kohort acl add"
        where = f" while {self.during}" if self.during else ""
        is_cluster = self.resource_type == "cluster"
        what = "the cluster" if is_cluster else f"{self.resource_type} {self.name}"
        option = "--cluster" if is_cluster else f"--{self.resource_type.replace('_', '-')} {self.name}"
        give = f"kohort acl add --principal User:NAME --operation {self.operation} {option}"
        return f"{self.code.name}{where}: this user lacks {self.operation} on {what}; {give} gives it"


class ProtocolError(KohortError):
    """Bytes that do not follow the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that cannot be decoded; the connection cannot be used any more."""


class ForeignProtocolError(RemoteProtocolError):
    """The peer speaks another protocol; `protocol` is its name, HTTP or TLS."""

    def __init__(self, protocol: str) -> None:
        super().__init__(protocol)
        self.protocol = protocol

    def __str__(self) -> str:
        return f"it looks like {self.protocol}"


class LocalProtocolError(ProtocolError):
    """This side tried to send a message that the protocol cannot carry."""


class CorruptRecordError(ProtocolError):
    """A record batch that is damaged: wrong CRC, impossible lengths or an unknown format.

    Args:
        message: the fault.
        byte: the batch's position in the bytes that were read; `None` if that is not known.
        partition: the partition of the records; like the offsets `None` outside of a consumer.
        offset: the first offset that cannot be read; `next_offset`: the offset to `seek` to, to continue.
    """

    def __init__(
        self,
        message: str,
        *,
        byte: int | None = None,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        next_offset: int | None = None,
    ) -> None:
        super().__init__(message)
        self.byte = byte
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class GroupNotEmptyError(BrokerError):
    """A group has members, which would undo the requested change; nothing is changed.

    `members`: names of some members; empty if they have left meanwhile.
    """

    def __init__(self, group: str, members: Sequence[str], *, during: str = "") -> None:
        super().__init__(ErrorCode.NON_EMPTY_GROUP, None, during=during)
        self.args = (group, members)
        self.group = group
        self.members = tuple(members)

    def __str__(self) -> str:
        shown = ", ".join(self.members[:5]) + (", ..." if len(self.members) > 5 else "")
        who = f"{len(self.members)} member{'s' * (len(self.members) != 1)} ({shown})" if self.members else "members"
        gone = f"kohort group remove-members {self.group} takes out static ones that are gone"
        return f"group {self.group} has {who}: stop them first; {gone}"


class UnsupportedFeatureError(BrokerError):
    """The broker does not support the request (UNSUPPORTED_VERSION); the message names the broker."""


class ConfigError(KohortError, ValueError):
    """An option has an invalid value, or options contradict each other."""


class UnknownOptionError(ConfigError):
    """An option that does not exist; the message has `why`, or the nearest one that does.

    `others`: a sentence for each further wrong option that was given with it.
    """

    def __init__(
        self,
        name: str,
        known: Iterable[str],
        *,
        what: str = "option",
        why: str | None = None,
        others: Iterable[str] = (),
    ) -> None:
        from difflib import get_close_matches

        self.name = name
        self.others = tuple(others)
        self.nearest = next(iter(get_close_matches(name, list(known), n=1, cutoff=0.6)), None)
        self.what = what
        self.why = why
        super().__init__(name)

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        said = f"{self.what} {self.name} {self.why}" if self.why else f"unknown {self.what} {self.name}{hint}"
        return "; ".join([said, *self.others])


class BrokersUnreachableError(KohortError):
    """No broker can be reached at a bootstrap address; `attempts` has (host:port, reason) of each."""

    retriable = True
    #: The remedy, with options as Python keywords.
    advice: str = "check bootstrap_servers and that the broker is running"

    def __init__(self, attempts: Sequence[tuple[str, str]]) -> None:
        super().__init__(attempts)
        self.attempts = tuple(attempts)

    @property
    def finding(self) -> str:
        """Return the finding without the advice."""
        return f"no broker can be reached: {_listed(self.attempts)}"

    def __str__(self) -> str:
        return f"{self.finding}; {self.advice}"


class NotKafkaError(BrokersUnreachableError):
    """Every bootstrap address accepts connections, but none of them answers as a Kafka broker does."""

    advice = "check that bootstrap_servers names a port of Kafka, and security_protocol what is spoken there"


class AuthenticationError(BrokersUnreachableError):
    """Brokers respond but reject this client's login, or cannot prove their identity to it.

    To wait does not help: every call raises this error at once until the login, the certificates or the broker change.
    """

    retriable = False
    advice = "check security_protocol and the options of ssl and sasl"

    @property
    def finding(self) -> str:
        """Return the finding without the advice."""
        return f"not authenticated: {_listed(self.attempts)}"


class AdvertisedAddressError(BrokersUnreachableError):
    """A broker responds, but none of the advertised addresses of its cluster can be reached.

    `answered`: host:port of the bootstrap address that responds. `attempts`: (host:port, reason) of each advertised
    address. `done`: actions that have succeeded all the same, as the beginning of a sentence.
    """

    advice = "set advertised.listeners of the broker to an address that clients reach"

    def __init__(self, answered: str, attempts: Sequence[tuple[str, str]], done: str = "") -> None:
        super().__init__(attempts)
        self.args = (answered, attempts, done)
        self.answered = answered
        self.done = done

    @property
    def finding(self) -> str:
        """Return the finding without the advice."""
        named = "names itself" if len(self.attempts) == 1 else "names the brokers"
        return f"{self.done}{self.answered} answers but {named} {_listed(self.attempts)}, which cannot be reached"


def _listed(attempts: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{address} ({reason})" for address, reason in attempts)


class KohortTimeoutError(KohortError, TimeoutError):
    """A call did not finish within its timeout."""

    retriable = True


class BufferFullError(KohortTimeoutError, BufferError):
    """A producer's buffer stayed full for `waited_s`, as long as `send` may wait (max.block.ms)."""

    def __init__(self, limit_bytes: int, waited_s: float) -> None:
        super().__init__(limit_bytes, waited_s)
        self.limit_bytes = limit_bytes
        self.waited_s = waited_s

    def __str__(self) -> str:
        full = f"stayed full for {self.waited_s:g} s" if self.waited_s else "is full"
        return f"buffer.memory ({self.limit_bytes} bytes) {full}: records are sent faster than the broker takes them"


class PartlySentError(KohortError):
    """Not all records of one `send_many` or `send_arrow` were stored.

    Args:
        stored: the stored records, as a `SentMany`, or one for each topic of a table.
        failed_count: the number of records that were not stored.
        reason: the error of the first of these, as text; the error itself is the `__cause__`.
        retriable: whether records that failed may be stored later.
    """

    def __init__(self, stored: object, failed_count: int, reason: str, retriable: bool = False) -> None:
        super().__init__(stored, failed_count, reason, retriable)
        self.stored = stored
        self.failed_count = failed_count
        self.reason = reason
        self.retriable = retriable

    def __str__(self) -> str:
        were = "record was" if self.failed_count == 1 else "records were"
        return f"{self.failed_count} {were} not stored: {self.reason}"


class SerializationError(KohortError, ValueError):
    """The application's serializer could not convert `what` of a record, its "key" or "value"."""

    def __init__(self, topic: str, what: str, reason: str) -> None:
        super().__init__(topic, what, reason)
        self.topic = topic
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return f"the {self.what} of a record of {self.topic}: {self.reason}"


class DeserializationError(KohortError, ValueError):
    """A deserializer failed: a function of the application could not read a record's key or value.

    The position stays on that record: seek to the offset after it to continue.

    Args:
        partition: the record's partition; its `topic` is an attribute of its own, too.
        offset: the record's offset; `next_offset`: the offset to `seek` to, to continue.
        what: "key" or "value".
        reason: the exception of the function, as text.
    """

    def __init__(self, partition: TopicPartition, offset: int, what: str, reason: str) -> None:
        super().__init__(partition, offset, what, reason)
        self.topic = partition.topic
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1
        self.what = what
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the {self.what} of the record at {self.partition}, offset {self.offset}, cannot be read: "
            f"{self.reason}; seek to {self.next_offset} to go on"
        )


class UnknownTopicError(KohortError):
    """A topic that does not exist on the cluster, or a partition that it does not have.

    `partition`: the missing one, of `partition_count`; `None` if the whole topic is missing. `was_deleted`: the topic
    existed and was deleted; another topic may have its name by now.
    """

    def __init__(
        self,
        topic: str,
        partition: int | None = None,
        partition_count: int | None = None,
        was_deleted: bool = False,
    ) -> None:
        super().__init__(topic, partition, partition_count, was_deleted)
        self.topic = topic
        self.partition = partition
        self.partition_count = partition_count
        self.was_deleted = was_deleted

    def __str__(self) -> str:
        if self.was_deleted:
            return f"topic {self.topic} was deleted; one that has its name now is another topic"
        if self.partition is not None:
            return f"{self.topic} has no partition {self.partition}: it has {self.partition_count}, counted from 0"
        return f"topic {self.topic} does not exist; create it with `kohort topic create {self.topic}`"


class NotInHistoryError(KohortError, LookupError):
    """The history of a group lacks the requested item; `there` names the items that it has.

    >>> str(NotInHistoryError("billing", "rebalance 9", "it has 2-4"))
    'the history of group billing has no rebalance 9: it has 2-4'
    """

    def __init__(self, group_id: str, wanted: str, there: str) -> None:
        super().__init__(group_id, wanted, there)
        self.group_id, self.wanted, self.there = group_id, wanted, there

    def __str__(self) -> str:
        return f"the history of group {self.group_id} has no {self.wanted}: {self.there}"


class LogTruncationError(KohortError):
    """Records that were read are no longer in the log: a new leader does not have them.

    From `diverging_offset` on the log has other records now; the reader's position was `offset`.
    """

    def __init__(self, topic: str, partition: int, offset: int, diverging_offset: int) -> None:
        super().__init__(topic, partition, offset, diverging_offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.diverging_offset = diverging_offset

    def __str__(self) -> str:
        return (
            f"the log of {self.topic}-{self.partition} was cut at offset {self.diverging_offset}, before the position "
            f"{self.offset}: what stood between them was lost with its leader; seek to {self.diverging_offset} to go on"
        )


class FencedError(BrokerError):
    """The coordinator has removed this member from its group; its partitions may have other owners."""

    def __init__(
        self, code: ErrorCode, message: str | None = None, *, group: str, member: str, epoch: int, during: str = ""
    ) -> None:
        super().__init__(code, message, during=during)
        self.group = group
        self.member = member
        self.epoch = epoch

    def __str__(self) -> str:
        return f"{super().__str__()} (group {self.group}, member {self.member}, epoch {self.epoch})"


class ProducerFencedError(BrokerError):
    """Another producer has taken over the transactional id, or the coordinator has ended the transaction by timeout.

    The producer cannot be used any more: close it. Its open transaction is aborted.
    """

    fatal = True

    def __init__(self, code: ErrorCode, message: str | None = None, *, transactional_id: str, during: str = "") -> None:
        super().__init__(code, message, during=during)
        self.transactional_id = transactional_id

    def __str__(self) -> str:
        return (
            f"{super().__str__()}: another producer uses the transactional id {self.transactional_id}, or the "
            "transaction took longer than transaction.timeout.ms; close this producer"
        )


class TransactionAbortableError(KohortError):
    """A transaction that cannot be committed: abort it, and do its work again in another one.

    The `__cause__` is the error for which it cannot; `reason` is its text.
    """

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(transactional_id, reason)
        self.transactional_id = transactional_id
        self.reason = reason

    def __str__(self) -> str:
        return f"the transaction of {self.transactional_id} cannot be committed: {self.reason}"


class StateError(KohortError, RuntimeError):
    """A call that is not possible in the object's present state (closed, not subscribed, ...)."""


def no_transaction(transactional_id: str) -> StateError:
    """Build the error of a call that needs an open transaction."""
    return StateError(
        f"no transaction of {transactional_id} is open: call it inside of `with producer.transaction():`, or behind "
        "begin_transaction()"
    )


class StorageError(KohortError):
    """A data directory or a log cannot be used; the message names it and the remedy."""


class MissingDependencyError(KohortError, ImportError):
    """An optional package is missing for this call; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f"this needs {self.package}; install it with: pip install 'kohort[{self.extra}]'"

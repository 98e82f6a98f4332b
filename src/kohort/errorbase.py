"""The base classes of kohort's errors: refusals, bugs, errors for callers, faults of a protocol.

Laws: an exception for callers survives pickling with its fields and its words. Others import all this from
`kohort.errors`.
Source: architecture rule 15.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kohort.errorcodes import ErrorCode


class Refused(Exception):
    """A protocol outcome: raised inside `decide`, turned into a reply at one place; nothing was changed.

    Args:
        code: what the reply carries.
        message: the reply's error message; `None` leaves it to the code.
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class InvariantViolation(AssertionError):
    """A bug in kohort: a law of a core did not hold. Never caught; it carries the story that led here."""

    def __init__(self, law: str, story: Sequence[object] = ()) -> None:
        super().__init__(law)
        self.law = law
        self.story = tuple(story)

    def __str__(self) -> str:
        return "\n".join([self.law, *(f"  {row}" for row in self.story)])


class KohortError(Exception):
    """Base of every exception that a caller of kohort may see."""

    #: The same call may succeed later without a change.
    retriable: bool = False
    #: The object that raised it cannot be used any more.
    fatal: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        # Rebuilt from what it holds: what a constructor asks for is not always kept, and its message is made anew.
        return _rebuild, (type(self), self.args), self.__dict__ or None


def _rebuild(kind: type[KohortError], args: tuple[object, ...]) -> KohortError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class PartlyDoneError(KohortError):
    """Only a part of a call's requests was carried out.

    Args:
        during: what was asked, e.g. "creating topics".
        done: each thing that was done (a topic, a partition, ...) with what the call would have returned of it.
        failed: each of the others with the reason, in the order asked; what is not there was not asked for.
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

    Args:
        code: the protocol's code.
        message: the broker's own words, `None` if it sent none.
        during: what was asked, e.g. "committing offsets of group orders".
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

    Args:
        operation: the right that is missing, "read"; empty where that is not known. So are the others.
        resource_type: on what: "topic", "group", "cluster" or "transactional_id".
        name: of the resource.
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
    """The peer sent bytes that do not decode; its connection is not usable any more."""


class ForeignProtocolError(RemoteProtocolError):
    """The peer speaks another protocol; `protocol` is its name, HTTP or TLS."""

    def __init__(self, protocol: str) -> None:
        super().__init__(protocol)
        self.protocol = protocol

    def __str__(self) -> str:
        return f"it looks like {self.protocol}"


class LocalProtocolError(ProtocolError):
    """This side tried to send a message that the protocol cannot carry."""

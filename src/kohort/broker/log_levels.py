"""The levels of the broker's loggers, as Kafka's admin tools see and set them (KIP-412).

`kohort.group.<group>.member.<member>` tells the requests of one member, `kohort.fetch.<topic>.<partition>` the reads of
one partition; shorter names tell those of the whole group or topic. They are silent unless one of them is set by name,
or a token has the caveat `log_level`.

Laws: only loggers of kohort are seen: an embedded broker's clients do not change what its program logs. `root` is the
one above them all. A level that was set is in force until it is taken back or the process ends, for every broker in it.
The number of loggers that clients name is bounded, and so are the lines of a second that tokens ask for.
Source: KIP-412; Apache Kafka's RuntimeLoggerManager and LogLevelConfig; users@kafka 2014-07-18 (debug level by consumer
and partition).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kohort.errors import ErrorCode, Refused
from kohort.security.capabilities.capability import Capability
from kohort.wire.messages.fetch import PartitionData
from kohort.wire.schema import Message

log = logging.getLogger("kohort.broker")

#: Kafka's name of the logger above all others, and ours.
ROOT: Final = "root"
_TOP: Final = "kohort"
#: Kafka's levels -> Python's numbers; Python has nothing below DEBUG.
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
#: The beginnings of names of loggers that clients may make by setting their levels.
_OF_GROUPS: Final = "kohort.group."
_OF_FETCHES: Final = "kohort.fetch."
#: Loggers that clients have made, which Python keeps as long as the process lives, and the longest name of one.
MOST_MADE: Final = 1_000
LONGEST_MADE: Final = 600
_made: Final[set[str]] = set()
#: Those of them whose levels are set; each request looks whether there are any.
asked_loggers: Final[set[str]] = set()
#: Lines of one second that tokens ask for; the others are counted.
MOST_LINES: Final = 200
#: Characters of a name or level that is repeated.
_LONGEST_SHOWN: Final = 200


def check_node(name: str, node_id: int, *, called: str = "node") -> None:
    """Refuse a resource's name that is not the number of this broker, in Apache Kafka's words."""
    if not name:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{called.capitalize()} id must not be empty")
    # Digits of other scripts, and more of them than Python converts, are no number of a broker.
    if not (name.isascii() and name.isdecimal() and len(name) <= 10):
        shown = name[:_LONGEST_SHOWN]
        raise Refused(ErrorCode.INVALID_REQUEST, f"{called.capitalize()} id must be an integer, but it is: {shown}")
    if int(name) != node_id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected {called} id, expected {node_id} but received {name}")


def levels() -> dict[str, str]:
    """Return the level in force of each logger, by its name."""
    found = logging.root.manager.loggerDict
    # A copy: a thread of the program may make a logger meanwhile.
    names = [name for name, logger in list(found.items()) if isinstance(logger, logging.Logger)]
    ours = {name: logging.getLogger(name) for name in sorted(names) if name.startswith(f"{_TOP}.")}
    return {ROOT: _word(logging.getLogger(_TOP)), **{name: _word(logger) for name, logger in ours.items()}}


def check_levels(changes: Iterable[tuple[str, str | None]]) -> dict[str, str | None]:
    """Check changes of levels, `None` takes one back; raise `Refused` in Apache Kafka's words."""
    checked: dict[str, str | None] = {}
    there = levels()
    for name, level in changes:
        shown = name[:_LONGEST_SHOWN]
        if name not in there and not _may_make(name, level):
            raise Refused(ErrorCode.INVALID_CONFIG, f"Logger {shown} does not exist!")
        if level is None and name == ROOT:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
        if level is not None and level not in LEVELS:
            raise Refused(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {shown} to {level[:_LONGEST_SHOWN]} as it is not a supported log level. "
                f"Valid log levels are {', '.join(sorted(LEVELS))}",
            )
        checked[name] = level
    return checked


def set_levels(changes: Mapping[str, str | None]) -> None:
    """Set checked levels; `None` takes one back, so that the logger has that of the one above it."""
    for name, level in changes.items():
        logger = logging.getLogger(_TOP if name == ROOT else name)
        number = logging.NOTSET if level is None else LEVELS[level]
        if number == LEVELS["TRACE"]:
            logging.addLevelName(number, "TRACE")
        # Before the change that may hide the line: a reader sees why the log is silent from here on.
        was_told = log.isEnabledFor(logging.WARNING)
        words = "event=log_level_changed logger=%s level=%s"
        if was_told:
            log.warning(words, name, level or "inherited")
        logger.setLevel(number)
        if name.startswith((_OF_GROUPS, _OF_FETCHES)):
            _made.add(name)
            (asked_loggers.discard if level is None else asked_loggers.add)(name)
        if not was_told:
            log.warning(words, name, level or "inherited")


def _may_make(name: str, level: str | None) -> bool:
    """Whether a logger that is not there is one of a group or topic, which is there once its level is set."""
    if level is None or not name.startswith((_OF_GROUPS, _OF_FETCHES)) or len(name) > LONGEST_MADE:
        return False
    if len(_made) >= MOST_MADE:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"{MOST_MADE} loggers of groups and topics are there already")
    # An empty part is no name for Python's loggers.
    return all(name.split("."))


# What is told of requests and reads


class Rights(Protocol):
    """The rights of a client."""

    @property
    def capability(self) -> Capability | None:
        """What its token allows."""

    @property
    def tells_requests(self) -> bool:
        """Whether its token asks for a line about each request."""


class Client(Protocol):
    """A client's connection."""

    principal: str


class Request(Protocol):
    """A request, as lines tell it."""

    @property
    def client_id(self) -> str:
        """The id that the client has given itself."""

    @property
    def connection(self) -> Client:
        """The connection that it came by."""

    @property
    def rights(self) -> Rights:
        """What its client may do."""


def tell_request(request: Request, api: str, message: Message) -> None:
    """Log a request of a group's member, where that is wanted."""
    group_id = getattr(message, "group_id", None)
    if not isinstance(group_id, str):
        return
    member_id = getattr(message, "member_id", "")
    of_group = _OF_GROUPS + group_id
    names = (f"{of_group}.member.{member_id}", of_group) if member_id else (of_group,)
    words = "event=request api=%s group=%r member=%r %s"
    _tell(request.rights, names, words, api, group_id, member_id, _Sender(request))


def tell_read(request: Request, topic: str, row: PartitionData) -> None:
    """Log a row of an answer to a fetch, where that is wanted."""
    of_topic, number = _OF_FETCHES + topic, row.partition_index
    words = "event=fetched topic=%r partition=%d bytes=%d error=%s %s"
    records = row.records or b""
    size = len(records) if isinstance(records, bytes | bytearray | memoryview) else sum(map(len, records))
    names = (f"{of_topic}.{number}", of_topic)
    _tell(request.rights, names, words, topic, number, size, ErrorCode(row.error_code).name, _Sender(request))


class _Sender:
    """The client of a request, as lines name it once they are written."""

    __slots__ = ("_request",)

    def __init__(self, request: Request) -> None:
        self._request: Final = request

    def __str__(self) -> str:
        request = self._request
        capability = request.rights.capability
        label = "" if capability is None else capability.label or ""
        connection = request.connection
        return f"principal={connection.principal!r} label={label!r} client_id={request.client_id!r}"


def _tell(rights: Rights, names: Sequence[str], words: str, *args: object) -> None:
    """Log a line by the first of these loggers that is set, else if the client's token asks for it."""
    for name in names:
        if name in asked_loggers:
            logger = logging.getLogger(name)
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug(words, *args)
                return
            break
    if not rights.tells_requests:
        return
    top = logging.getLogger(_TOP)
    record = top.makeRecord(names[0][:LONGEST_MADE], logging.DEBUG, "", 0, words, args, None)
    if _lines.has_room(record.created):
        # Past the levels of the loggers, which say what is told of others.
        top.handle(record)


class _Lines:
    """The lines of the present second that tokens have asked for: a holder may ask for as many as it likes."""

    def __init__(self) -> None:
        self._second = self._count = self._kept_back = 0

    def has_room(self, at: float) -> bool:
        """Count a line; whether it may be written."""
        if int(at) != self._second:
            if self._kept_back:
                log.info("event=details_not_logged lines=%d", self._kept_back)
            self._second, self._count, self._kept_back = int(at), 0, 0
        self._count += 1
        self._kept_back += self._count > MOST_LINES
        return self._count <= MOST_LINES


_lines: Final = _Lines()


def _word(logger: logging.Logger) -> str:
    """Return Kafka's name of the level in force; a number between two of them shows no more than the higher one."""
    number = logger.getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if number <= least), "FATAL")

"""The levels of the broker's loggers, as Kafka's admin tools see and set them (KIP-412).

Laws: only loggers of kohort are seen: an embedded broker's clients do not change what its program logs. `root` is the
one above them all. A level that was set is in force until it is taken back or the process ends, for every broker in it.
Source: KIP-412; Apache Kafka's RuntimeLoggerManager and LogLevelConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kohort.errors import ErrorCode, Refused

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
        if name not in there:
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
        if not was_told:
            log.warning(words, name, level or "inherited")


def _word(logger: logging.Logger) -> str:
    """Return Kafka's name of the level in force; a number between two of them shows no more than the higher one."""
    number = logger.getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if number <= least), "FATAL")

"""The options that a broker takes from a configuration file, mainly one written for Apache Kafka.

Laws: everything that is wrong is told at once, each with FILE:LINE. An option of Apache Kafka that this broker does not
have is passed over and named; the file is refused only where that would break a promise: encryption, logins and
permissions, copies on other brokers, policies, or the role of a controller alone. Listeners that are for controllers
are left out.
Source: Apache Kafka 4.3's config/server.properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.base.options import Verdict, parse_list
from kohort.broker.options.configfile import ConfigFile
from kohort.broker.options.settings import BROKER_OPTIONS, parse_address
from kohort.errors import ConfigError, UnknownOptionError
from kohort.wire.private import NOT_YET

#: Verdicts with which an option is ignored, and the words for each.
_PASSED_OVER: Final = {Verdict.NOT_NEEDED: "not needed here", Verdict.NOT_YET: NOT_YET}
_ADDRESSES: Final = ("listeners", "advertised.listeners")


@dataclass(slots=True)
class TakenFile:
    """The options to start with, and Apache Kafka's options that were ignored, by the reason."""

    path: str
    config: dict[str, object] = field(default_factory=dict)
    passed_over: dict[str, list[str]] = field(default_factory=dict)

    @property
    def remark(self) -> str | None:
        """One line about the ignored options; `None` if there are none."""
        said = [f"{words}: {', '.join(self.passed_over[words])}" for words in sorted(self.passed_over)]
        return f"{self.path}: {'; '.join(said)}" if said else None


def take_file(file: ConfigFile) -> TakenFile:
    """Check every option of a file; `ConfigError` lists all errors, a line each."""
    taken = TakenFile(file.path)
    wrong: list[str] = []
    for name, raw in file.values.items():
        try:
            words = _why_passed_over(name, raw)
            if words is None:
                taken.config[name] = _checked(file, name, raw)
            else:
                taken.passed_over.setdefault(words, []).append(name)
        except ConfigError as why:
            wrong.append(f"{file.place_of(name)}: {why}")
    if wrong:
        raise ConfigError("\n".join(wrong))
    return taken


def _why_passed_over(name: str, raw: object) -> str | None:
    """Return the reason why an option has no effect; `None` if it is taken."""
    if name in BROKER_OPTIONS:
        return None
    unserved = BROKER_OPTIONS.unserved(name)
    if unserved is None or unserved.verdict not in _PASSED_OVER:
        raise _unknown(name)
    if name == "process.roles" and "broker" not in parse_list(raw):
        raise ConfigError(f"process.roles is {raw}: this is the file of a controller alone, and kohort is a broker")
    return _PASSED_OVER[unserved.verdict]


def _unknown(name: str) -> UnknownOptionError:
    try:
        BROKER_OPTIONS.option(name)
    except UnknownOptionError as why:
        return why
    raise AssertionError(f"{name} is an option")


def _checked(file: ConfigFile, name: str, raw: object) -> object:
    """Check a value and return it as it is handed on."""
    # Errors of the value itself are raised here, where its line is known.
    value = _for_clients(file, raw) if name in _ADDRESSES and isinstance(raw, str) else raw
    BROKER_OPTIONS.option(name).check(value)
    if name in _ADDRESSES:
        parse_address(name, str(value))
    return value


def _for_clients(file: ConfigFile, text: str) -> str:
    """Return the listeners that are not for controllers, with protocols in place of their names."""
    controllers = {name.upper() for name in parse_list(file.values.get("controller.listener.names", ""))}
    pairs = (pair.partition(":") for pair in parse_list(file.values.get("listener.security.protocol.map", "")))
    protocols = {name.upper(): protocol for name, _, protocol in pairs}
    kept = []
    for listener in parse_list(text):
        name, separator, address = listener.rpartition("://")
        if not separator or name.upper() not in controllers:
            kept.append(f"{protocols.get(name.upper(), name)}{separator}{address}")
    return ",".join(kept)

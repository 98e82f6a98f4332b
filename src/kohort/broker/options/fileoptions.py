"""The options that a broker reads from a configuration file, mainly one written for Apache Kafka.

Laws: all errors are reported together, each with FILE:LINE. An option of Apache Kafka that this broker does not have is
ignored and named. The file is refused only if ignoring an option would break a promise: a login mechanism or a Java
class that is not served, replicas on other brokers, policies, or the role of a controller alone. Listeners of
controllers are left out, with their options.
Source: Apache Kafka 4.3's config/server.properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.base.options import Verdict, parse_list
from kohort.broker.options import listener_options
from kohort.broker.options.configfile import ConfigFile
from kohort.broker.options.listeners import parse_endpoints, parse_protocols
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.errors import ConfigError
from kohort.wire.private import NOT_YET

#: Verdict with which an option is ignored -> the reason in the remark.
_PASSED_OVER: Final = {Verdict.NOT_NEEDED: "not needed here", Verdict.NOT_YET: NOT_YET}
_OF_CONTROLLERS: Final = _PASSED_OVER[Verdict.NOT_NEEDED]
_ADDRESSES: Final = ("listeners", "advertised.listeners")


@dataclass(slots=True)
class TakenFile:
    """The options of a file, and Apache Kafka's options in it that are ignored, by reason."""

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
    controllers = tuple(f"listener.name.{name.lower()}." for name in _controllers(file))
    for name, raw in file.values.items():
        try:
            words = _OF_CONTROLLERS if name.startswith(controllers) else _why_passed_over(name, raw)
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
    """Return the reason why an option is ignored; `None` if the broker uses it."""
    if name in BROKER_OPTIONS:
        return None
    own = name
    if listener_options.is_of_listener(name):
        kafkas = listener_options.unserved_option(name, BROKER_OPTIONS)
        if kafkas is None:
            return None
        own = kafkas
    unserved = BROKER_OPTIONS.unserved(own)
    if unserved is None or unserved.verdict not in _PASSED_OVER:
        raise _unknown(name)
    if name == "process.roles" and "broker" not in parse_list(raw):
        raise ConfigError(f"process.roles is {raw}: this is the file of a controller alone, and kohort is a broker")
    return _PASSED_OVER[unserved.verdict]


def _unknown(name: str) -> ConfigError:
    try:
        if listener_options.is_of_listener(name):
            listener_options.parse_name(name, BROKER_OPTIONS)
        BROKER_OPTIONS.option(name)
    except ConfigError as why:
        return why
    raise AssertionError(f"{name} is an option")


def _checked(file: ConfigFile, name: str, raw: object) -> object:
    """Check a value, and return it without listeners of controllers."""
    # Errors of a value are raised here, because here its line is known.
    if listener_options.is_of_listener(name):
        listener_options.checked(name, raw, BROKER_OPTIONS)
        return raw
    value = _for_clients(file, raw) if name in _ADDRESSES and isinstance(raw, str) else raw
    BROKER_OPTIONS.option(name).check(value)
    if name in _ADDRESSES:
        parse_endpoints(name, str(value))
    if name == "listener.security.protocol.map":
        parse_protocols(str(value))
    return value


def _controllers(file: ConfigFile) -> set[str]:
    """Return the names of the controllers' listeners, in upper case."""
    return {name.upper() for name in parse_list(file.values.get("controller.listener.names", ""))}


def _for_clients(file: ConfigFile, text: str) -> str:
    """Remove the controllers' listeners from the value of `listeners` or `advertised.listeners`."""
    controllers = _controllers(file)
    return ",".join(each for each in parse_list(text) if each.rpartition("://")[0].upper() not in controllers)

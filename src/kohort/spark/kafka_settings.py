"""The parameters of `option()`, split into kohort's options and settings of Kafka's client.

Laws: names come in any case. Each is acted on, answered with a log line that says why it changes nothing, or refused
by the name under which it was given; none is ignored in silence.
Source: Spark's Kafka integration guide (`kafka.`); Apache Kafka's client configurations; measured with PySpark 4.3: the
code that makes a table in Python learns its options, the code that reads or writes it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.client.securityoptions import security_settings
from kohort.config import OptionSet, Verdict
from kohort.errors import ConfigError, UnknownOptionError

_PREFIX: Final = "kafka."
#: Of settings that protect a connection: one that is not acted on must not look as if it were.
_SECURITY: Final = ("security.", "ssl.", "enable.ssl.", "sasl.", "enable.sasl.", "oauth", "https.")
#: Settings that only a Java virtual machine can act on, and their replacement here.
_JVM_ONLY: Final = {
    "sasl.login.class": "it names a Java class",
    "sasl.login.callback.handler.class": "it names a Java class; name a function as sasl.oauth.token.provider",
    "sasl.client.callback.handler.class": "it names a Java class",
    "sasl.kerberos.service.name": "Kerberos logins are made by Java; use another mechanism",
    "security.providers": "it names Java classes",
    "ssl.engine.factory.class": "it names a Java class",
}
#: Java's names of assignors are ours with another face.
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
#: Properties that Spark adds to the options of a table of its catalog.
_OF_TABLES: Final = "provider"
_TABLES_INSTEAD: Final = "CREATE TEMPORARY VIEW ... USING kohort OPTIONS (...) keeps them"


@dataclass(frozen=True, slots=True)
class Given:
    """Options with checked names and unparsed values.

    `own`: under their proper case. `kafka`: settings without their prefix.

    `remarks`: a sentence for each that changes nothing.
    """

    own: dict[str, object] = field(default_factory=dict)
    kafka: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def split_options(
    given: Mapping[str, str],
    *,
    own: OptionSet,
    settings: OptionSet,
    refused: Mapping[str, str],
    idle: Mapping[str, str],
    instead_of_path: str,
) -> Given:
    """Split the options of one `load()`, `save()` or `start()`.

    Args:
        given: as Spark hands them over.
        own: the options without a prefix.
        settings: those of the client, which have one.
        refused: settings that the caller owns, and what to do instead.
        idle: settings that change nothing, and why.
        instead_of_path: the option that names what `load("orders")` seems to name; Spark itself adds an empty path.

    Raises:
        UnknownOptionError: the name is unknown.
        ConfigError: a setting is refused, or cannot have that value; the address of a broker is missing; a table.
    """
    if _OF_TABLES in map(str.lower, given):
        raise ConfigError(
            f"CREATE TABLE ... USING kohort is no use: Spark forgets the table's options; {_TABLES_INSTEAD}"
        )
    found = Given()
    by_lower = {option.name.lower(): option for option in own}
    for name, value in given.items():
        lowered = name.lower()
        option = by_lower.get(lowered)
        if lowered.startswith(_PREFIX):
            _take_setting(found, lowered.removeprefix(_PREFIX), value, settings=settings, refused=refused, idle=idle)
        elif option is not None:
            found.own[option.name] = value
            words = option.idle_words(value)
            if words is not None:
                found.remarks.append(f"option {option.name} changes nothing: {words}")
        elif lowered == "path":
            if value:
                raise ConfigError(f"the path {value!r} names no topic: leave it out, and give option {instead_of_path}")
        elif lowered.startswith("spark.kafka.clusters."):
            raise ConfigError(f"option {name} cannot be set: delegation tokens are fetched and renewed by a JVM")
        else:
            known = [*(each.name for each in own), *(_PREFIX + each.name for each in settings)]
            raise UnknownOptionError(name, known, what=own.what)
    if "bootstrap.servers" not in found.kafka:
        table = "" if given else f" (no option is given at all: those of a table Spark forgets; {_TABLES_INSTEAD})"
        raise ConfigError(f"option kafka.bootstrap.servers is needed: the address of a broker, HOST:PORT{table}")
    return found


def check_security(checked: Mapping[str, object]) -> None:
    """Check that TLS and login can be set up by a client's parsed settings; read their files, once."""
    try:
        security_settings(checked)
    except ConfigError as wrong:
        raise ConfigError(f"options with kafka. in front: {wrong}") from None


def _take_setting(
    found: Given, name: str, value: str, *, settings: OptionSet, refused: Mapping[str, str], idle: Mapping[str, str]
) -> None:
    why = refused.get(name)
    is_known = name in settings
    if why is None and not is_known:
        why = _JVM_ONLY.get(name)
    if why is not None:
        raise ConfigError(f"option {_PREFIX}{name} cannot be set: {why}")
    if name in idle:
        found.remarks.append(f"option {_PREFIX}{name} changes nothing: {idle[name]}")
    elif is_known:
        option = settings.option(name)
        if option.name == "partition.assignment.strategy":
            value = ",".join(_ASSIGNORS.get(each.strip(), each.strip()) for each in value.split(","))
        try:
            option.check(value)
        except ConfigError as wrong:
            raise ConfigError(f"option {_PREFIX}{wrong}") from None
        if option.name in found.kafka:
            raise ConfigError(f"option {_PREFIX}{option.name} is given twice, under two names: leave one out")
        found.kafka[option.name] = value
    else:
        _answer_unknown(found, name, settings)


def _answer_unknown(found: Given, name: str, settings: OptionSet) -> None:
    unserved = settings.unserved(name)
    if unserved is None:
        known = [_PREFIX + each.name for each in settings]
        raise UnknownOptionError(_PREFIX + name, known, what=settings.what)
    if unserved.verdict is Verdict.CALLED:
        raise UnknownOptionError(_PREFIX + name, (), what=settings.what, why=f"is called {_PREFIX}{unserved.why} here")
    if unserved.verdict is Verdict.REFUSED or name.startswith(_SECURITY):
        why = f"{unserved.verdict.value}: {unserved.why}"
        raise UnknownOptionError(_PREFIX + name, (), what=settings.what, why=why)
    found.remarks.append(f"option {_PREFIX}{name} changes nothing: {unserved.why}")

"""The options that are given for one listener: `listener.name.<name>.<option>`.

Laws: an option that cannot be set for one listener, or that is not served, is an error that says so. A value is checked
like that of the option without the prefix. The name of a SASL mechanism may precede the options of the mechanism.
Source: Apache Kafka's `ListenerName.configPrefix` and `saslMechanismConfigPrefix`, both in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kohort.base.options import OptionSet, as_keyword
from kohort.base.values import value
from kohort.broker.options.security_options import MECHANISMS, PER_LISTENER, PER_MECHANISM
from kohort.errors import ConfigError, UnknownOptionError

#: The prefixes of such names, dotted and as a keyword, with the character between the parts of the name.
_PREFIXES: Final = (("listener.name.", "."), ("listener_name_", "_"))
#: Mechanism as spelled in the name of an option -> as spelled in the keys of `ListenerSettings.values`.
_MECHANISMS: Final = {
    spelling: name.lower() for name in MECHANISMS for spelling in (name.lower(), as_keyword(name.lower()))
}


@value(kw_only=False)
class OfListener:
    """An option of one listener: the listener's name in lower case, the mechanism if there is one, the option."""

    listener: str
    mechanism: str | None
    option: str

    @property
    def key(self) -> str:
        """The name in `ListenerSettings.values`."""
        return self.option if self.mechanism is None else f"{self.mechanism}.{self.option}"


def is_of_listener(name: object) -> bool:
    """Return whether a name is that of an option of one listener."""
    return isinstance(name, str) and name.lower().startswith(tuple(prefix for prefix, _ in _PREFIXES))


def parse_name(name: str, known: OptionSet) -> OfListener:
    """Split the name of a listener's option into its parts; `ConfigError` if there is no such option."""
    prefix, separator = next(each for each in _PREFIXES if name.lower().startswith(each[0]))
    rest = name[len(prefix) :]
    splits = list(_splits(rest, separator))
    # The longest option that exists is taken, so the name of the listener is as short as possible.
    for listener, option in splits:
        if option in known and known.option(option).name in PER_LISTENER:
            return OfListener(listener.lower(), None, known.option(option).name)
        for mechanism, key in _MECHANISMS.items():
            own = option.lower().startswith(mechanism + separator) and option[len(mechanism) + 1 :]
            if own and own in known and known.option(own).name in PER_MECHANISM:
                return OfListener(listener.lower(), key, known.option(own).name)
    raise _unknown(name, splits, known)


def is_secret(name: str, known: OptionSet) -> bool:
    """Return whether a name is that of a secret option, of one listener or of all."""
    if is_of_listener(name):
        try:
            name = parse_name(name, known).option
        except ConfigError:
            return False
    return name in known and known.option(name).is_secret


def unserved_option(name: str, known: OptionSet) -> str | None:
    """Return the part of a listener's option that only Apache Kafka has; `None` if it is an option here.

    Raises `ConfigError` if the name is unknown to Apache Kafka, too.
    """
    try:
        parse_name(name, known)
    except UnknownOptionError as why:
        prefix, separator = next(each for each in _PREFIXES if name.lower().startswith(each[0]))
        for _, option in _splits(name[len(prefix) :], separator):
            if known.unserved(option) is not None:
                return option
        raise why
    return None


def _splits(rest: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield each (listener, option) that a name may mean, the longest option first."""
    at = rest.find(separator)
    while at >= 0:
        if at:
            yield rest[:at], rest[at + 1 :]
        at = rest.find(separator, at + 1)


def _unknown(name: str, splits: list[tuple[str, str]], known: OptionSet) -> ConfigError:
    """Return the error for an unknown name, for an option of all listeners, or for one of Kafka's alone."""
    for _, option in splits:
        if option in known:
            own = known.option(option).name
            return ConfigError(f"{name} cannot be set for one listener: {own} holds for all of them")
    for _, option in splits:
        if known.unserved(option) is not None:
            try:
                known.option(option)
            except UnknownOptionError as why:
                return UnknownOptionError(name, (), what=known.what, why=why.why)
    if any(name[len(prefix) :] in known for prefix, _ in _PREFIXES if name.lower().startswith(prefix)):
        return ConfigError(f"{name} has no listener: listener.name.NAME.OPTION is expected")
    prefix = f"listener.name.{splits[0][0]}." if splits else "listener.name.NAME."
    return UnknownOptionError(name, [prefix + option for option in sorted(PER_LISTENER)], what=known.what)


def take_overrides(
    config: Mapping[str, object], known: OptionSet
) -> tuple[dict[str, object], dict[str, dict[str, Any]]]:
    """Separate the options of single listeners from all others, and check their values.

    Returns:
        The other options unchanged, and listener in lower case -> key of `ListenerSettings.values` -> value.
    """
    others: dict[str, object] = {}
    overrides: dict[str, dict[str, Any]] = {}
    for name, raw in config.items():
        if not is_of_listener(name):
            others[name] = raw
            continue
        asked, value = checked(name, raw, known)
        own = overrides.setdefault(asked.listener, {})
        if asked.key in own:
            raise ConfigError(f"{name} is given twice: leave one of the two out")
        own[asked.key] = value
    return others, overrides


def checked(name: str, raw: object, known: OptionSet) -> tuple[OfListener, Any]:
    """Check the value of one listener's option; the error has the name as it was given."""
    asked = parse_name(name, known)
    try:
        return asked, known.option(asked.option).check(raw)
    except ConfigError as why:
        # The message begins with the option's name, and never has the value of a secret.
        raise ConfigError(f"{name}{str(why).removeprefix(asked.option)}") from None

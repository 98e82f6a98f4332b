"""Options as data: names, types, limits and defaults of brokers, clients and the Spark source.

Laws: an unknown name is an error that tells the nearest valid one; a value is checked once, here.
Names are Kafka's own dotted ones; Python callers write them in snake_case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kohort.errors import ConfigError, UnknownOptionError

#: What a setting may be once it is parsed.
Value = bool | int | float | str | list[str] | None


def parse_bool(text: object) -> bool:
    """Kafka's booleans: true or false, in any case."""
    if isinstance(text, bool):
        return text
    lowered = str(text).strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise ValueError("true or false is expected")


def parse_int(text: object) -> int:
    """A whole number, also from text; booleans and fractions are refused."""
    if isinstance(text, bool) or (isinstance(text, float) and not text.is_integer()):
        raise ValueError("a whole number is expected")
    try:
        return int(str(text).strip()) if isinstance(text, str) else int(text)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise ValueError("a whole number is expected") from None


def parse_float(text: object) -> float:
    """A number, also from text."""
    try:
        return float(str(text).strip())
    except ValueError:
        raise ValueError("a number is expected") from None


def parse_str(text: object) -> str:
    """Text as it is; `None` is refused."""
    if text is None:
        raise ValueError("text is expected")
    return str(text)


def parse_list(text: object) -> list[str]:
    """A list of names, or one text with commas."""
    if isinstance(text, str):
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(text, Iterable):
        return [str(part) for part in text]
    raise ValueError("a list of names is expected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting: `name` as Kafka writes it, `parse` from text or Python, inclusive limits, one sentence of doc."""

    name: str
    parse: Callable[[object], Any]
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def keyword(self) -> str:
        """The name as a Python keyword argument."""
        return self.name.replace(".", "_").replace("-", "_")

    def check(self, raw: object) -> Any:
        """Parse `raw` and hold it against the limits; `ConfigError` names option, value and what is expected."""
        if raw is None and self.default is None:
            return None
        try:
            value = self.parse(raw)
        except ValueError as why:
            raise ConfigError(f"{self.name} cannot be {raw!r}: {why}") from None
        if self.minimum is not None and value < self.minimum:
            raise ConfigError(f"{self.name} cannot be {value}: at least {self.minimum} is expected")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(f"{self.name} cannot be {value}: at most {self.maximum} is expected")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{self.name} cannot be {value!r}: one of {', '.join(self.choices)} is expected")
        return value


class OptionSet:
    """The options of one thing (a broker, a consumer, ...), looked up by dotted name or keyword.

    >>> linger = Option(name="linger.ms", parse=parse_int, default=0, doc="Wait.", minimum=0)
    >>> options = OptionSet("demo option", [linger])
    >>> options.parse({"linger_ms": "5"})
    {'linger.ms': 5}
    >>> options.parse({"lingr.ms": 5})
    Traceback (most recent call last):
    kohort.errors.UnknownOptionError: unknown demo option lingr.ms; did you mean linger.ms?
    """

    def __init__(self, what: str, options: Iterable[Option]) -> None:
        self.what: Final = what
        self._by_name: Final = {option.name: option for option in options}
        self._by_keyword: Final = {option.keyword: option for option in self._by_name.values()}

    def __iter__(self) -> Iterator[Option]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name in self._by_keyword

    def option(self, name: str) -> Option:
        """The option of that dotted name or keyword; `UnknownOptionError` names the nearest."""
        found = self._by_name.get(name) or self._by_keyword.get(name)
        if found is None:
            known = self._by_name if "." in name else self._by_keyword
            raise UnknownOptionError(name, known, what=self.what)
        return found

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Every option by dotted name: the given values checked, the others at their defaults."""
        values = {option.name: option.default for option in self}
        for name, raw in given.items():
            option = self.option(name)
            values[option.name] = option.check(raw)
        return values

"""Options as data: names, types, limits and defaults of brokers, clients and the Spark source.

Laws: an unknown name is an error that names the nearest valid one, or for a name of Kafka or another client what to
use instead; a value is checked once, here; an option that changes nothing says so.
Names are Kafka's own dotted ones; Python callers write them in snake_case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from functools import cached_property
from math import isnan, nan
from os import PathLike
from typing import Any, Final, Literal, get_args, get_origin

from kohort.base import values
from kohort.errors import ConfigError, UnknownOptionError

#: What stands for a secret, as in Apache Kafka.
HIDDEN: Final = "[hidden]"


class Password:
    """A secret text: its str and repr are `HIDDEN`, and only the attribute `value` has it.

    >>> str(Password("swordfish")), f"{Password('swordfish')}", Password("swordfish").value
    ('[hidden]', '[hidden]', 'swordfish')

    Source: Apache Kafka's `Password`.
    """

    # No dataclass: conversions of dataclasses to dictionaries and JSON would reveal the secret.
    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value: Final = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return HIDDEN

    # Any text may end in a log, so none has the secret; uses of `value` can be found by a search.
    __str__ = __repr__


#: The types of a parsed setting.
Value = bool | int | float | str | list[str] | Password | None


def parse_bool(text: object) -> bool:
    """Parse Kafka's booleans: true or false, in any case."""
    if isinstance(text, bool):
        return text
    lowered = str(text).strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise ValueError("true or false is expected")


def parse_int(text: object) -> int:
    """Parse a whole number, also from text; refuse booleans and fractions."""
    is_fraction = isinstance(text, float) and not text.is_integer()
    # Python's own 1_000 is no number to Kafka, nor to the tools that are shown it.
    if isinstance(text, bool) or is_fraction or "_" in str(text):
        raise ValueError("a whole number is expected")
    try:
        return int(str(text).strip()) if isinstance(text, str) else int(text)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise ValueError("a whole number is expected") from None


def parse_float(text: object) -> float:
    """Parse a number, also from text."""
    try:
        number = float(str(text).strip())
    except ValueError:
        number = nan
    if isnan(number) or "_" in str(text):
        raise ValueError("a number is expected")
    return number


def parse_str(text: object) -> str:
    """Convert text, a path or a number to text; refuse any other type."""
    if not isinstance(text, str | int | float | PathLike):
        raise ValueError("text is expected")
    return str(text)


def parse_password(text: object) -> Password:
    """Convert text to a `Password`."""
    return text if isinstance(text, Password) else Password(parse_str(text))


def parse_function(value: object) -> Callable[..., Any]:
    """Check that the value is a function."""
    if not callable(value):
        raise ValueError("a function is expected")
    return value


def parse_list(text: object) -> list[str]:
    """Parse a list of names, or one text with commas."""
    if isinstance(text, str):
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(text, Iterable) and not isinstance(text, bytes | bytearray | memoryview | Mapping):
        return [parse_str(part) for part in text]
    raise ValueError("a list of names is expected")


def as_text(value: object) -> str:
    """Format a value as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@values.value
class Idle:
    """The mark of an option that is kept and shown but changes nothing, with `words` that say so.

    `unless`: values that ask for what happens anyway, and so need no remark.
    """

    words: str
    unless: tuple[object, ...] = ()


@values.value
class Option:
    """A setting with its limits and one sentence of doc."""

    #: As Kafka writes it; in a table for `options_of` it is that of the field.
    name: str = ""
    parse: Callable[[object], Any]
    default: Any
    doc: str
    #: Inclusive, as `maximum`.
    minimum: float | None = None
    maximum: float | None = None
    #: Of a list, the possible entries.
    choices: tuple[Any, ...] = ()
    #: `None` if the option has an effect, as nearly all have.
    idle: Idle | None = None
    #: Its names in other clients, which are accepted as well.
    also: tuple[str, ...] = ()
    #: Whether errors and log lines must not show the value.
    is_secret: bool = False

    @property
    def keyword(self) -> str:
        """The name as a Python keyword argument."""
        return as_keyword(self.name)

    def check(self, raw: object) -> Any:
        """Parse `raw` and check its limits; `ConfigError` names the option, the value and the expected form."""
        if raw is None and self.default is None:
            return None
        try:
            value = self.parse(raw)
        except ConfigError:
            # The parser has its own words: the value is not to be repeated.
            raise
        except ValueError as why:
            shown = "what it is" if self.is_secret else repr(raw)
            raise ConfigError(f"{self.name} cannot be {shown}: {why}") from None
        if self.minimum is not None and value < self.minimum:
            raise ConfigError(f"{self.name} cannot be {value}: at least {self.minimum} is expected")
        if self.maximum is not None and value > self.maximum:
            raise ConfigError(f"{self.name} cannot be {value}: at most {self.maximum} is expected")
        wrong = [each for each in (value if isinstance(value, list) else [value]) if each not in self.choices]
        if self.choices and wrong:
            expected = ", ".join(map(str, self.choices))
            raise ConfigError(f"{self.name} cannot be {wrong[0]!r}: one of {expected} is expected")
        return value

    def idle_words(self, raw: object) -> str | None:
        """Return the remark on a value that changes nothing; `None` if it has an effect."""
        if self.idle is None:
            return None
        try:
            is_so_anyway = self.check(raw) in self.idle.unless
        except ConfigError:
            # A value stored before values were checked.
            is_so_anyway = False
        return None if is_so_anyway else self.idle.words


@values.value(kw_only=False)
class Spelling:
    """The mark of a field that is another client's name for the option `of`, accepted as well."""

    of: str


def options_of(table: type) -> list[Option]:
    """Read the options from a `TypedDict`: each field is annotated with its own, or with a `Spelling` of another's.

    An option has the name of its field, with a dot for each underscore. The words of a `Literal` are its choices. A
    field that is annotated with neither is passed over.

    >>> from typing import Annotated, TypedDict
    >>> need = Option(parse=parse_str, default="all", doc="Copies.")
    >>> Words = Literal["all", "0", 0]
    >>> fields = {"need_acks": Annotated[Words, need], "copies": Annotated[Words, Spelling(of="need.acks")]}
    >>> Table = TypedDict("Table", fields, total=False)
    >>> [(option.name, option.choices, option.also) for option in options_of(Table)]
    [('need.acks', ('all', '0'), ('copies',))]
    """
    found: dict[str, Option] = {}
    for field, annotation in table.__annotations__.items():
        name = field.replace("_", ".")
        for entry in getattr(annotation, "__metadata__", ()):
            if isinstance(entry, Option):
                found[name] = replace(entry, name=name, choices=_words_of(annotation.__origin__) or entry.choices)
            elif isinstance(entry, Spelling):
                found[entry.of] = replace(found[entry.of], also=(*found[entry.of].also, name))
    return list(found.values())


def _words_of(kind: object) -> tuple[str, ...]:
    words = (get_args(each) for each in (kind, *get_args(kind)) if get_origin(each) is Literal)
    return tuple(word for word in next(words, ()) if isinstance(word, str))


class Verdict(Enum):
    """The reason for which an option of another program does not exist here."""

    #: It sets a thing that does not exist here and is not needed.
    NOT_NEEDED = "is not needed here"
    NOT_YET = "is not served yet"
    #: Likewise, but its users rely on it: without it a promise would be broken.
    REFUSED = "is not served"
    #: It has another name.
    CALLED = "is called"


@values.value(kw_only=False)
class Unserved:
    """Options of Kafka or its clients that kohort lacks: `names`, a final `*` for any rest, and why.

    `why` says what happens or what to use instead; for a `Verdict.CALLED` it is the option's name here.
    """

    names: str
    verdict: Verdict
    why: str

    def matches(self, keyword: str) -> int:
        """Return the number of matched characters of a snake_case name; a whole name gives the most."""
        best = 0
        for name in map(as_keyword, self.names.split()):
            if name == keyword:
                return 1000
            if name.endswith("*") and keyword.startswith(name[:-1]):
                best = max(best, len(name))
        return best


def as_keyword(name: str) -> str:
    """Convert a dotted name to a Python keyword argument."""
    return name.replace(".", "_").replace("-", "_")


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

    def __init__(
        self,
        what: str,
        options: Iterable[Option] | Callable[[], Iterable[Option]],
        *,
        unserved: Callable[[], Iterable[Unserved]] = tuple,
    ) -> None:
        """Create a set of options.

        `options`: a function is called on first use. `unserved`: options known elsewhere; called only when a name is
        unknown.
        """
        self.what: Final = what
        self._options: Final = options
        self._unserved: Final = unserved

    @cached_property
    def _by_name(self) -> dict[str, Option]:
        options = self._options() if callable(self._options) else self._options
        return {option.name: option for option in options}

    @cached_property
    def _by_keyword(self) -> dict[str, Option]:
        """The options by keyword, and by the names of other clients."""
        found = {option.keyword: option for option in self._by_name.values()}
        for option in self._by_name.values():
            for name in option.also:
                found[name] = found[as_keyword(name)] = option
        return found

    def __iter__(self) -> Iterator[Option]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name or name in self._by_keyword

    def option(self, name: str) -> Option:
        """Return an option by dotted name or keyword; `UnknownOptionError` gives the reason or the nearest."""
        found = self._by_name.get(name) or self._by_keyword.get(name)
        if found is not None:
            return found
        if not isinstance(name, str):
            raise ConfigError(f"{self.what} {name!r} is not a name: text is expected")
        unserved = self.unserved(name)
        if unserved is not None:
            raise UnknownOptionError(name, (), what=self.what, why=self._reason(unserved, name))
        elsewhere = [each for row in self._unserved() for each in row.names.split() if not each.endswith("*")]
        known = [*self._by_name, *elsewhere] if "." in name else [*self._by_keyword, *map(as_keyword, elsewhere)]
        raise UnknownOptionError(name, known, what=self.what)

    def unserved(self, name: str) -> Unserved | None:
        """Return the known option of another program by that name; `None` if there is none."""
        keyword = as_keyword(name)
        best = max(self._unserved(), key=lambda row: row.matches(keyword), default=None)
        return best if best is not None and best.matches(keyword) else None

    def _reason(self, unserved: Unserved, name: str) -> str:
        if unserved.verdict is Verdict.CALLED:
            unit = ", in bytes" if name.endswith("kbytes") else ""
            return f"{unserved.verdict.value} {unserved.why if '.' in name else as_keyword(unserved.why)} here{unit}"
        return f"{unserved.verdict.value}: {unserved.why}"

    def gather(self, config: object, keywords: Mapping[str, object]) -> dict[str, object]:
        """Gather a caller's options, a mapping and keywords, by dotted name, without parsing them.

        Raises:
            ConfigError: `config` is no mapping, a name is unknown, or an option is given twice.
        """
        if config is None:
            config = {}
        if not isinstance(config, Mapping):
            example = next(iter(self))
            raise ConfigError(
                f"{config!r} is given without a name: options are written {example.keyword}=..., "
                f"or handed over as a mapping like {{'{example.name}': ...}}"
            )
        given: dict[str, object] = {}
        spelling: dict[str, str] = {}
        unknown: list[UnknownOptionError] = []
        for name, value in (*config.items(), *keywords.items()):
            try:
                option = self.option(name).name
            except UnknownOptionError as why:
                unknown.append(why)
                continue
            if option in given:
                both = name if spelling[option] == name else f"{spelling[option]} and {name}"
                raise ConfigError(f"{option} is given twice ({both}): leave one of the two out")
            given[option], spelling[option] = value, name
        if unknown:
            # A user who brings the options of another client gets all faults at once.
            unknown[0].others = tuple(map(str, unknown[1:]))
            raise unknown[0]
        return given

    def parse(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Parse every option by dotted name: given values are checked, others have their defaults."""
        values = {option.name: option.default for option in self}
        for name, raw in self.gather(given, {}).items():
            values[name] = self.option(name).check(raw)
        return values

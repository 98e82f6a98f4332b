"""The declarations of messages: a declaration is the typed class and the schema at once.

Laws: a declaration costs one class creation and nothing more (no reflection, no `exec`) until its class is first
instantiated or its codec first used; attributes stand in the order of the wire; an object holds no version.
Source: the attributes of Apache Kafka's message definitions (versions, nullable versions, tags, defaults); KIP-482.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, dataclass_transform

#: The uses of messages; the last two are the keys and values of `__consumer_offsets`.
MessageKind = Literal["request", "response", "header", "data", "coordinator-key", "coordinator-value"]


P = ParamSpec("P")


class Scalar(NamedTuple):
    """A type of values that have no fields or elements."""

    #: Kafka's name of the type.
    name: str
    #: Format character of the struct module; empty where the size depends on the value.
    code: str
    #: Size in bytes; 0 where it depends on the value.
    size: int
    #: The default value of fields of this kind.
    default: object

    def __repr__(self) -> str:
        return self.name.upper()


class Array(NamedTuple):
    """A list of values of one kind."""

    element: Scalar | type[Message]

    @property
    def name(self) -> str:
        """Kafka's notation of the kind, e.g. `[]int32`."""
        return f"[]{kind_name(self.element)}"


#: Kafka's scalar types.
BOOL: Final = Scalar("bool", "?", 1, False)
INT8: Final = Scalar("int8", "b", 1, 0)
INT16: Final = Scalar("int16", "h", 2, 0)
UINT16: Final = Scalar("uint16", "H", 2, 0)
INT32: Final = Scalar("int32", "i", 4, 0)
UINT32: Final = Scalar("uint32", "I", 4, 0)
INT64: Final = Scalar("int64", "q", 8, 0)
FLOAT64: Final = Scalar("float64", "d", 8, 0.0)
UUID: Final = Scalar("uuid", "16s", 16, bytes(16))
STRING: Final = Scalar("string", "", 0, "")
BYTES: Final = Scalar("bytes", "", 0, b"")
RECORDS: Final = Scalar("records", "", 0, None)


class _Unset:
    """The type of `UNSET`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"


#: "No value was given": distinguishes an argument that was left out from `None`, which is a value of the protocol.
UNSET: Final = _Unset()


class Field:
    """One attribute of a message: its kind and the versions in which it travels.

    Args:
        kind: a scalar of this module, `array(...)` or a message that is a part of others.
        since: first version in which the field travels.
        until: last such version; `None` means that no version has dropped it.
        nullable: first version in which null is allowed; `None` means never.
        tag: number in the tagged section; `None` for an ordinary field.
        tag_since: first version in which it is tagged, where that differs from `since`; before it the field is an
            ordinary one.
        compact: false for the one field of Kafka that keeps its old form in flexible versions: the client id.
        default: value of a new message, and of a decoded one whose version lacks the field;
            left out it is zero, empty, or a struct of defaults.
        is_secret: whether the message's repr must not show the value.
    """

    __slots__ = ("compact", "default", "is_secret", "kind", "name", "nullable", "since", "tag", "tag_since", "until")

    def __init__(
        self,
        kind: Kind,
        *,
        since: int = 0,
        until: int | None = None,
        nullable: int | None = None,
        tag: int | None = None,
        tag_since: int | None = None,
        compact: bool = True,
        default: object = UNSET,
        is_secret: bool = False,
    ) -> None:
        if default is UNSET and isinstance(kind, Scalar):
            default = kind.default
        elif isinstance(default, list):
            assert not default, "an array's default is empty or null"
            default = UNSET
        #: Kafka's name in snake_case; given by the class that holds the field.
        self.name = ""
        self.kind = kind
        self.since, self.until, self.nullable = since, until, nullable
        self.tag, self.tag_since = tag, since if tag_since is None else tag_since
        self.compact = compact
        self.is_secret = is_secret
        #: `UNSET` means a fresh empty list, or a fresh struct of default values.
        self.default = default

    def is_in(self, version: int) -> bool:
        """Whether `version` has the field at all, tagged or not."""
        return self.since <= version and (self.until is None or version <= self.until)

    def is_tagged(self, version: int) -> bool:
        """Whether the field stands in the tagged section of `version`."""
        return self.tag is not None and self.is_in(version) and version >= self.tag_since

    def is_nullable(self, version: int) -> bool:
        """Whether `version` can carry null for the field."""
        return self.nullable is not None and version >= self.nullable

    def make_default(self) -> object:
        """Return the value of a new message; lists and structs are fresh each time."""
        if self.default is not UNSET:
            return self.default
        return [] if isinstance(self.kind, Array) else self.kind()  # type: ignore[operator]

    def __repr__(self) -> str:
        return f"Field({self.name}: {kind_name(self.kind)})"


def _as_any(declare: Callable[P, Field]) -> Callable[P, Any]:
    return declare


#: Declares one attribute of a message; typed `Any` so that the attribute's own annotation counts.
field = _as_any(Field)
#: The kind of a list of elements.
array = Array


class MessageSchema(NamedTuple):
    """The key, kind and versions of a message class, from `@message`."""

    #: API key of a request or response, type of a group record; `None` for others.
    key: int | None
    kind: MessageKind
    first_version: int
    last_version: int
    #: First version in the form of KIP-482; `None` means none.
    flexible_since: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether `version` has compact lengths and tagged sections."""
        return self.flexible_since is not None and version >= self.flexible_since


class _MessageMeta(type):
    """The metaclass of messages, which turns the fields of a class body into slots."""

    _fields: tuple[Field, ...]

    def __new__(metacls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _MessageMeta:
        fields = []
        for attribute, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = attribute
                fields.append(value)
                del namespace[attribute]
        # Slots keep messages small; a class that declares its own keeps them.
        if "__slots__" not in namespace:
            namespace["__slots__"] = tuple(each.name for each in fields)
        namespace["_fields"] = tuple(fields)
        return super().__new__(metacls, name, bases, namespace)


# `field` is no field specifier for the type checker: then any call of it counts as a default, which it always is.
@dataclass_transform(kw_only_default=True)
class Message(metaclass=_MessageMeta):
    """The base of every message and struct.

    The constructor takes the fields as keywords, each with its default.
    """

    __slots__ = ("unknown_tags",)

    _fields: tuple[Field, ...]
    _schema: MessageSchema
    #: Tagged fields that the declaration does not know: tag → raw value; `None` means none. They survive a round trip.
    unknown_tags: dict[int, bytes] | None

    def __init__(self, **values: object) -> None:
        # Most declared classes are never instantiated in a given process, so the real constructor is made when the
        # first one is; it then takes the place of this method in the class.
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = self.unknown_tags or None, other.unknown_tags or None
        return mine == theirs and all(getattr(self, each.name) == getattr(other, each.name) for each in self._fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ((each, getattr(self, each.name)) for each in self._fields)
        shown = [f"{each.name}={'<hidden>' if each.is_secret and value else repr(value)}" for each, value in values]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


#: The kinds of fields.
Kind = Scalar | Array | type[Message]
M = TypeVar("M", bound=type[Message])


def message(
    *, versions: str, flexible: str | None = None, key: int | None = None, kind: MessageKind = "data"
) -> Callable[[M], M]:
    """Mark a class as a message.

    Args:
        versions: those that the declaration covers, "0-4" or "3".
        flexible: the first version in the form of KIP-482, "2+"; "none" or `None` where no version has it.
        key: API key of a request or response, type of a group record.
        kind: what the message is for.
    """
    first, _, last = versions.partition("-")
    since = None if flexible in (None, "none") else int(str(flexible).rstrip("+"))
    schema = MessageSchema(key, kind, int(first), int(last or first), since)

    def mark(cls: M) -> M:
        cls._schema = schema
        return cls

    return mark


def fields_of(cls: type[Message]) -> tuple[Field, ...]:
    """Return the fields of a message or struct in the order of the wire."""
    return cls._fields


def schema_of(cls: type[Message]) -> MessageSchema:
    """Return the schema of a message class; `TypeError` for a struct, which has no versions of its own."""
    try:
        return cls._schema
    except AttributeError:
        raise TypeError(f"{cls.__name__} is a struct, not a message") from None


def kind_name(kind: Kind) -> str:
    """Return Kafka's name of a kind, e.g. `int32`, `[]string`, `TopicData`."""
    return kind.__name__ if isinstance(kind, type) else kind.name


def _compile_constructor(cls: type[Message]) -> Callable[..., None]:
    """Compile a keyword-only `__init__` of straight-line assignments."""
    namespace: dict[str, Any] = {"UNSET": UNSET}
    parameters, lines = [], []
    for each in cls._fields:
        if each.default is not UNSET:
            namespace[f"_{each.name}"] = each.default
            parameters.append(f"{each.name}=_{each.name}")
            lines.append(f" self.{each.name} = {each.name}")
            continue
        fresh = "[]"
        if isinstance(each.kind, type):
            namespace[f"_{each.name}"] = each.kind
            fresh = f"_{each.name}()"
        parameters.append(f"{each.name}=UNSET")
        lines.append(f" self.{each.name} = {fresh} if {each.name} is UNSET else {each.name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    # Most messages have no unknown tags: None costs less than an empty mapping.
    lines.append(" self.unknown_tags = None")
    source = "\n".join([f"def __init__({signature}):", *lines])
    exec(compile(source, f"<kohort {cls.__name__}.__init__>", "exec"), namespace)
    return namespace["__init__"]  # type: ignore[no-any-return]

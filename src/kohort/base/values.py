"""Value classes: named fields, given by keyword, compared by value, never changed.

A frozen dataclass compiles its methods when it is declared, about half a millisecond each. A client's events and
commands are forty such classes, those of a coordinator and its state a hundred. Here a constructor is compiled with the
first instance, as those of messages are, and the other methods are shared. Only the type checker prevents changes.
`dataclasses.replace`, `fields` and `asdict` treat a value as a dataclass.
`from_row` makes one object of another that has fields of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")
_TOLD: Final = ("__dataclass_fields__", "__dataclass_params__")
_OF_INSTANCES: Final = ("__dict__", "__weakref__")


class _Told:
    """An attribute by which `dataclasses` recognises the fields of a class, made on first use."""

    def __init__(self, name: str) -> None:
        self._name: Final = name

    def __get__(self, _: object, cls: type[_Value]) -> Any:
        declared = {"__annotations__": dict.fromkeys(cls._fields, Any), **cls._defaults}
        found = getattr(dataclass(frozen=True, kw_only=True)(type(cls.__name__, (), declared)), self._name)
        setattr(cls, self._name, found)
        return found


class _Value:
    __slots__ = ()

    #: The fields in their order, those of bases first, and the defaults of those that have one.
    _fields: tuple[str, ...] = ()
    _defaults: Mapping[str, object] = {}
    #: Returns a key of an instance, by which instances are compared.
    _key: Callable[[object], object] = attrgetter("_fields")

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        return cls._key(self) == cls._key(other) if type(other) is cls else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), type(self)._key(self)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


def _construct_first(self: _Value, **values: object) -> None:
    """Compile the constructor of a class with its first instance, and call it."""
    cls = type(self)
    cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
    cls.__init__(self, **values)


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Convert a class of annotated fields, some with immutable defaults, to a value class.

    Its bases are values, too.

    >>> @value
    ... class Sought:
    ...     partition: int
    ...     offset: int = 0
    >>> Sought(partition=3)
    Sought(partition=3, offset=0)
    >>> Sought(partition=3) == Sought(offset=0, partition=3)
    True
    """
    declared: dict[str, Any] = {name: each for name, each in vars(cls).items() if name not in _OF_INSTANCES}
    own = tuple(declared.get("__annotations__", ()))
    defaults = {name: declared.pop(name) for name in own if name in declared}
    fields = (*dict.fromkeys((*getattr(cls, "_fields", ()), *own)),)
    declared |= {"__slots__": own, "_fields": fields, "_defaults": {**getattr(cls, "_defaults", {}), **defaults}}
    declared |= {"_key": attrgetter(*fields or ["_fields"]), **{name: _Told(name) for name in _TOLD}}
    bases = cls.__bases__ if issubclass(cls, _Value) else (_Value,)
    return type(cls.__name__, bases, declared | {"__init__": _construct_first})


def _compile_constructor(cls: type[_Value]) -> Callable[..., None]:
    parameters = [f"{name}=_defaults[{name!r}]" if name in cls._defaults else name for name in cls._fields]
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    body = "".join(f"\n self.{name} = {name}" for name in cls._fields) or " pass"
    namespace: dict[str, Callable[..., None]] = {}
    source = f"def __init__({signature}):{body}"
    exec(compile(source, f"<kohort {cls.__name__}.__init__>", "exec"), {"_defaults": cls._defaults}, namespace)
    return namespace["__init__"]


def from_row(kind: type[T], row: object, **others: object) -> T:
    """Make an object from a row's fields of the same names, and `others`, which take precedence.

    `kind`: a class with slots that are keywords of its constructor: a value class, a message or a dataclass.
    """
    return kind(**{name: getattr(row, name) for name in _shared(kind, type(row))} | others)  # type: ignore[arg-type]


def or_none(number: int) -> int | None:
    """Return a number of the protocol, or `None` for a negative one, which means none."""
    return None if number < 0 else number


@cache
def _shared(kind: type, of: type) -> tuple[str, ...]:
    return tuple(name for name in kind.__slots__ if hasattr(of, name))  # type: ignore[attr-defined]

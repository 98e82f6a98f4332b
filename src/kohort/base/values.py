"""Value classes: named fields, given by keyword, compared by value, never changed.

A frozen dataclass compiles its methods where it is declared, about half a millisecond each, and what a client's two
sides say to each other is forty classes. Here a constructor is compiled with the first instance, as those of messages
are, and the other methods are shared. That nothing changes is held by the type checker alone.
`from_row` makes one object of another that has fields of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


class _Value:
    __slots__ = ()

    #: The fields in their order, and the defaults of those that have one.
    _fields: tuple[str, ...] = ()
    _defaults: Mapping[str, object] = {}

    def __init__(self, **values: object) -> None:
        cls = type(self)
        cls.__init__ = _compile_constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, name) for name in self._fields)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


@dataclass_transform(kw_only_default=True, frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make a class of annotated fields, some with defaults that never change, one of values.

    >>> @value
    ... class Sought:
    ...     partition: int
    ...     offset: int = 0
    >>> Sought(partition=3)
    Sought(partition=3, offset=0)
    >>> Sought(partition=3) == Sought(offset=0, partition=3)
    True
    """
    declared = dict(vars(cls))
    fields = tuple(declared.get("__annotations__", ()))
    defaults = {name: declared.pop(name) for name in fields if name in declared}
    for name in ("__dict__", "__weakref__"):
        declared.pop(name, None)
    declared |= {"__slots__": fields, "_fields": fields, "_defaults": defaults}
    return type(cls.__name__, (_Value,), declared)


def _compile_constructor(cls: type[_Value]) -> Callable[..., None]:
    parameters = [f"{name}=_defaults[{name!r}]" if name in cls._defaults else name for name in cls._fields]
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    body = "".join(f"\n self.{name} = {name}" for name in cls._fields) or " pass"
    namespace: dict[str, Callable[..., None]] = {}
    source = f"def __init__({signature}):{body}"
    exec(compile(source, f"<kohort {cls.__name__}.__init__>", "exec"), {"_defaults": cls._defaults}, namespace)
    return namespace["__init__"]


def from_row(kind: type[T], row: object, **others: object) -> T:
    """Make an object of a row's fields by the same names, and of `others`, which take precedence.

    `kind`: a class with slots whose constructor takes them by keyword: of values, of a message, a dataclass.
    """
    return kind(**{name: getattr(row, name) for name in _shared(kind, type(row))} | others)  # type: ignore[arg-type]


def or_none(number: int) -> int | None:
    """Return a number of the wire, where a negative one stands for none."""
    return None if number < 0 else number


@cache
def _shared(kind: type, of: type) -> tuple[str, ...]:
    return tuple(name for name in kind.__slots__ if hasattr(of, name))  # type: ignore[attr-defined]

"""Value classes: named fields, given by keyword, compared by value, never changed.

A frozen dataclass compiles its methods when it is declared, about half a millisecond each. A client's events and
commands are forty such classes, those of a broker, its coordinator and its state two hundred. Here a constructor is
compiled with the first instance, as those of messages are, and the other methods are shared. Only the type checker
prevents changes.
`dataclasses.replace`, `fields` and `asdict` treat a value as a dataclass; `field` describes its fields, too.
`from_row` makes one object of another that has fields of the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform, overload

T = TypeVar("T")
_TOLD: Final = ("__dataclass_fields__", "__dataclass_params__")
_OF_INSTANCES: Final = ("__dict__", "__weakref__")
#: The default of a parameter whose field is made anew for each instance.
_MADE: Final = object()


class _Told:
    """An attribute by which `dataclasses` recognises the fields of a class, made on first use."""

    def __init__(self, name: str) -> None:
        self._name: Final = name

    def __get__(self, _: object, cls: type[_Value]) -> Any:
        declared = {"__annotations__": dict.fromkeys(cls._fields, Any), "__doc__": " ", **cls._defaults}
        # Without methods: to compile them takes a millisecond.
        told = dataclass(
            init=False, repr=False, eq=False, match_args=False, kw_only=True, frozen=self._name == _TOLD[1]
        )
        found = getattr(told(type(cls.__name__, (), declared)), self._name)
        setattr(cls, self._name, found)
        return found


class _Value:
    __slots__ = ()

    #: The fields in their order, those of bases first; the defaults, or descriptions, of those that have one.
    _fields: tuple[str, ...] = ()
    _defaults: Mapping[str, object] = {}
    #: How many fields the constructor takes by position.
    _positional: int = 0
    #: Returns a key of an instance, by which instances are compared.
    _key: Callable[[object], object] = attrgetter("_fields")

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        return cls._key(self) == cls._key(other) if type(other) is cls else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), type(self)._key(self)))

    def __replace__(self, /, **changes: Any) -> Any:
        return replace(self, **changes)  # type: ignore[type-var]

    def __repr__(self) -> str:
        shown = [name for name in self._fields if _described(self._defaults.get(name), "repr")]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _construct_first(self: _Value, *positional: object, **values: object) -> None:
    """Compile the constructor of a class with its first instance, and call it."""
    # A subclass that is no value itself may have a constructor of its own, which calls this one.
    cls: Any = next(each for each in type(self).__mro__ if "_fields" in vars(each))
    cls.__init__ = _compile_constructor(cls)
    cls.__init__(self, *positional, **values)


@overload
def value(cls: type[T], /) -> type[T]: ...


@overload
def value(*, kw_only: bool = True, frozen: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def value(cls: type[T] | None = None, /, *, kw_only: bool = True, frozen: bool = True, eq: bool = True) -> Any:
    """Convert a class of annotated fields, some with immutable defaults, to a value class.

    Its bases are values, too. The arguments are those of `dataclass`: a value that is not frozen has no hash, and one
    without `eq` is equal to itself alone.

    >>> @value
    ... class Sought:
    ...     partition: int
    ...     offset: int = 0
    >>> Sought(partition=3)
    Sought(partition=3, offset=0)
    >>> Sought(partition=3) == Sought(offset=0, partition=3)
    True
    """
    if cls is None:
        return lambda declaring: _declare(declaring, kw_only=kw_only, frozen=frozen, eq=eq)
    return _declare(cls, kw_only=kw_only, frozen=frozen, eq=eq)


def _declare(cls: Any, *, kw_only: bool, frozen: bool, eq: bool) -> Any:
    declared: dict[str, Any] = {name: each for name, each in vars(cls).items() if name not in _OF_INSTANCES}
    own = tuple(declared.get("__annotations__", ()))
    # Fields behind `_: KW_ONLY` go by keyword, too.
    by_keyword = own[own.index("_") :] if "_" in own else ()
    own = tuple(name for name in own if name != "_")
    defaults = getattr(cls, "_defaults", {}) | {name: declared.pop(name) for name in own if name in declared}
    fields = (*dict.fromkeys((*getattr(cls, "_fields", ()), *own)),)
    positional = 0 if kw_only else len(fields) - max(len(by_keyword) - 1, 0)
    compared = [name for name in fields if _described(defaults.get(name), "compare")]
    declared |= {"__slots__": own, "_fields": fields, "_defaults": defaults, "_positional": positional}
    declared |= {"_key": attrgetter(*compared or ["_fields"]), **{name: _Told(name) for name in _TOLD}}
    if not kw_only:
        declared["__match_args__"] = fields[:positional]
    if not eq:
        declared = {"__eq__": object.__eq__, "__hash__": object.__hash__, **declared}
    elif not frozen:
        declared.setdefault("__hash__", None)
    bases = () if issubclass(cls, _Value) else (_Value,)
    bases += tuple(each for each in cls.__bases__ if each is not object)
    return type(cls)(cls.__name__, bases, declared | {"__init__": _construct_first, "__qualname__": cls.__qualname__})


def _described(default: object, what: str) -> bool:
    """Return a flag of a field's `dataclasses.field`, such as `compare`; without a `field` it is true."""
    return not isinstance(default, Field) or bool(getattr(default, what))


def _compile_constructor(cls: type[_Value]) -> Callable[..., None]:
    parameters: list[str] = []
    lines: list[str] = []
    given: dict[str, object] = {"_MADE": _MADE}
    for name in cls._fields:
        content, default = name, cls._defaults.get(name, MISSING)
        if isinstance(default, Field):
            if not default.init:
                continue
            if default.default_factory is not MISSING:
                given[f"_make_{name}"] = default.default_factory
                content, default = f"_make_{name}() if {name} is _MADE else {name}", _MADE
            else:
                default = default.default
        given[f"_default_{name}"] = default
        parameters.append(name if default is MISSING else f"{name}=_default_{name}")
        lines.append(f"\n self.{name} = {content}")
    if hasattr(cls, "__post_init__"):
        lines.append("\n self.__post_init__()")
    if cls._positional < len(parameters):
        parameters.insert(cls._positional, "*")
    namespace: dict[str, Callable[..., None]] = {}
    source = f"def __init__({', '.join(['self', *parameters])}):{''.join(lines) or ' pass'}"
    exec(compile(source, f"<kohort {cls.__name__}.__init__>", "exec"), given, namespace)
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

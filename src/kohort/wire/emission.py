"""The source of compiled codecs: indentation, names, and runs of values of fixed size.

Laws: consecutive values of fixed size, and the length prefix that follows them, are read or written by one call of
struct; whatever is not of fixed size ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct, calcsize
from typing import Any, Final

from kohort.wire.primitives import pack_code, prepared_packers, prepared_unpackers
from kohort.wire.schema import UUID, Array, Field, Kind, Message, Scalar

#: Prepared functions by format character, shared by all compiled codecs.
_UNPACKERS: Final[dict[str, list[Callable[..., tuple[Any, ...]]]]] = {}
_PACKERS: Final[dict[str, list[Callable[..., bytes]]]] = {}


class Emitter:
    """The lines of one function, and the objects that they name."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        #: The globals of the compiled function.
        self.namespace: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = 0
        #: Format character and expression of each value that waits for one common call of struct.
        self.run: list[tuple[str, str]] = []
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line; the run must have been written before."""
        self.lines.append(" " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add a line that opens a block, and indent the lines of the block."""
        self.line(head)
        before = len(self.lines)
        self.indent += 1
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.indent -= 1

    @contextmanager
    def form_of(self, each: Field) -> Iterator[None]:
        """Surround the lines for one field, which may keep its old form in a flexible version."""
        flexible = self.flexible
        # The client id in request headers keeps its old form in flexible versions.
        self.flexible = flexible and each.compact
        yield
        self.flexible = flexible

    def fresh(self, stem: str) -> str:
        """Return a new local name."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object) -> str:
        """Return the name of a global of the function with the value `value`."""
        name = f"{stem}_{len(self.namespace)}"
        self.namespace[name] = value
        return name

    def unpacker(self, codes: str) -> str:
        """Return the name of a function (buffer, position) → values."""
        name = "u_" + codes.replace("?", "z")
        self.namespace.setdefault(name, Struct(">" + codes).unpack_from)
        return name

    def packer(self, codes: list[str]) -> str:
        """Return the name of a function (values) → bytes."""
        packed = "".join(map(pack_code, codes))
        self.namespace.setdefault("p_" + packed, Struct(">" + packed).pack)
        return "p_" + packed

    def number_unpackers(self, code: str) -> str:
        """Return the name of a list of functions, by count, that read numbers of one size."""
        if code not in _UNPACKERS:
            _UNPACKERS[code] = prepared_unpackers(code)
        name = f"us_{code.replace('?', 'z')}"
        self.namespace[name] = _UNPACKERS[code]
        return name

    def number_packers(self, code: str) -> str:
        """Return the name of a list of functions, by count, that write numbers of one size."""
        if code not in _PACKERS:
            _PACKERS[code] = prepared_packers(code)
        name = f"ps_{code.replace('?', 'z')}"
        self.namespace[name] = _PACKERS[code]
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Compile the lines and return a function of them; `title` is its file in tracebacks."""
        assert not self.run, "a run was not written out"
        exec(compile("\n".join(self.lines), f"<kohort {title}>", "exec"), self.namespace)
        return self.namespace[function]  # type: ignore[no-any-return]


def plain_fields(cls: type[Message], version: int) -> list[Field]:
    """Return the untagged fields of `version`, in order."""
    return [each for each in cls._fields if each.is_in(version) and not each.is_tagged(version)]


def tagged_fields(cls: type[Message], version: int, flexible: bool) -> list[Field]:
    """Return the tagged fields of `version`, by ascending tag."""
    if not flexible:
        return []
    # KIP-482: tagged fields are written by ascending tag.
    return sorted((each for each in cls._fields if each.is_tagged(version)), key=lambda each: each.tag or 0)


def smallest_size(kind: Kind, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of `kind` takes."""
    # By this, decoders bound the count of an array before they trust it.
    if isinstance(kind, Scalar):
        if kind.size:
            return kind.size
        return 1 if flexible else 2 if kind.name == "string" else 4
    if isinstance(kind, Array):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for each in plain_fields(kind, version):
        if isinstance(each.kind, type) and each.is_nullable(version):
            total += 1
        else:
            total += smallest_size(each.kind, version, flexible and each.compact)
    return total


def holds_records(cls: type[Message]) -> bool:
    """Whether the message has a RECORDS field, in itself or in a struct."""
    for each in cls._fields:
        kind = each.kind.element if isinstance(each.kind, Array) else each.kind
        if isinstance(kind, type) and holds_records(kind):
            return True
        if isinstance(kind, Scalar) and kind.name == "records":
            return True
    return False


def is_number(kind: Kind) -> bool:
    """Whether a value of `kind` is one number or boolean."""
    return isinstance(kind, Scalar) and bool(kind.code) and kind is not UUID


def run_size(codes: str) -> int:
    """Return the bytes of a run of these format characters."""
    return calcsize(">" + codes)

"""The compiler of decoders: makes one straight-line function of (message class, version).

Laws: nested structs are inlined, so a message costs one call; positions only grow, so one comparison at the end finds
every slice that ran over; anything else that is too short ends in IndexError or struct.error, which the function turns
into `RemoteProtocolError`. A count is compared with the bytes that remain before the first element is made.
Source: KIP-482 for compact forms and tagged sections; Kafka's int8 marker before a nullable struct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kohort.errors import RemoteProtocolError
from kohort.wire import primitives
from kohort.wire.primitives import Buffer, Emitter, Malformed, holds_records, tagged_fields
from kohort.wire.schema import UNSET, UUID, Array, Field, Kind, Message, Scalar, schema_of

#: (buffer, position) → (message, position after it).
Decoder = Callable[[Buffer, int], tuple[Any, int]]

#: Buffers of at most this size are copied once to bytes, which slice and decode faster than views.
COPY_AT_MOST: Final = 4096
#: The most numbers, texts and tagged fields of an untrusted peer's message, for each struct that it may have.
VALUES_PER_ROW: Final = 8


def compile_decoder(cls: type[Message], version: int, most_rows: int | None = None) -> Decoder:
    """Compile the decoder of one version.

    It decodes bytes, and passes other buffers to a second decoder, which is made when first needed.
    `most_rows`: the most structs in all arrays of one message, and `VALUES_PER_ROW` times as many other values.
    """
    emitter = _DecoderEmitter(cls, version, most_rows, from_view=False)
    emitter.namespace["decode_buffer"] = _buffer_decoder(cls, version, most_rows)
    decode: Decoder = emitter.function()
    return decode


def _buffer_decoder(cls: type[Message], version: int, most_rows: int | None) -> Decoder:
    """Return a decoder of buffers that are not bytes."""
    twin: list[Decoder] = []
    keeps_views = holds_records(cls)

    def decode_buffer(decode: Decoder, buffer: Buffer, position: int) -> tuple[Any, int]:
        view = buffer if isinstance(buffer, memoryview) else memoryview(buffer)
        if view.format != "B" or not view.contiguous:
            view = view.cast("B")
        whole = view.obj
        # A view of whole bytes needs no copy.
        if type(whole) is bytes and len(whole) == len(view):
            return decode(whole, position)
        # Short messages are copied once: bytes slice and decode faster than views.
        if not keeps_views and 0 <= len(view) - position <= COPY_AT_MOST:
            message, end = decode(bytes(view[position:]), 0)
            return message, position + end
        if not twin:
            twin.append(_DecoderEmitter(cls, version, most_rows, from_view=True).function())
        return twin[0](view, position)

    return decode_buffer  # type: ignore[return-value]


class _DecoderEmitter(Emitter):
    """The writer of one decoder's source.

    In the source, `b` is the buffer, `n` its length and `p` the position, `rows` the structs that may still come in
    arrays, `values` the other values that may; within a length prefix `p` stands on the prefix's last byte.
    """

    def __init__(self, cls: type[Message], version: int, most_rows: int | None, *, from_view: bool) -> None:
        super().__init__(version, schema_of(cls).is_flexible(version))
        self.cls = cls
        self.most_rows = most_rows
        self.from_view = from_view
        self.title = f"{cls.__name__} version {version}"
        self.namespace.update(
            new=object.__new__,
            Malformed=Malformed,
            StructError=struct.error,
            long_length=primitives.read_long_length,
            read_uvarint=primitives.read_uvarint,
            long_string=primitives.read_long_string_length,
            read_tags=primitives.read_tagged_section,
            read_tag=primitives.read_tag,
            read_numbers=primitives.read_numbers,
            broken=self._broken,
        )

    def _broken(self, error: Exception, position: int) -> RemoteProtocolError:
        reason = str(error) if isinstance(error, Malformed | UnicodeDecodeError) else "the bytes end too early"
        return RemoteProtocolError(f"{self.title} does not decode near byte {position}: {reason}")

    def function(self) -> Decoder:
        """Write and compile the whole function."""
        with self.block("def decode(b, p=0):"):
            if not self.from_view:
                with self.block("if type(b) is not bytes:"):
                    self.line("return decode_buffer(decode, b, p)")
            self.line("n = len(b)")
            if self.most_rows is not None:
                self.line(f"rows = {self.most_rows}")
                self.line(f"values = {self.most_rows * VALUES_PER_ROW}")
            with self.block("try:"):
                self.struct(self.cls, "m")
                self.flush()
                with self.block("if p > n:"):
                    self.line("raise IndexError")
                self.line("return m, p")
            with self.block("except (IndexError, StructError, UnicodeDecodeError, Malformed) as error:"):
                self.line("raise broken(error, p) from None")
        return self.compile("decode", f"decoder of {self.title}")

    def read(self, code: str, target: str) -> None:
        """Let `target` take the next value of fixed size."""
        self.run.append((code, target))

    def flush(self, *, on_prefix: bool = False) -> None:
        """Write out the run; `on_prefix` leaves `p` on the last byte of it."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        self.run.clear()
        size = primitives.run_size(codes) - (1 if on_prefix else 0)
        if codes == "B":
            self.line(f"{targets[0]} = b[p]")
        else:
            self.line(f"{', '.join(targets)}{',' * (len(targets) == 1)} = {self.unpacker(codes)}(b, p)")
        if size:
            self.line(f"p += {size}")

    def struct(self, cls: type[Message], target: str) -> None:
        """Decode a struct into a new object named `target`."""
        self.flush()
        self.line(f"{target} = new({self.constant('T', cls)})")
        for each in cls._fields:
            if not each.is_in(self.version) or (each.is_tagged(self.version) and not self.flexible):
                # A field that does not travel in this version reads as its default.
                self.line(f"{target}.{each.name} = {self.default(each)}")
        for each in primitives.plain_fields(cls, self.version):
            with self.form_of(each):
                self.value(each.kind, f"{target}.{each.name}", each.name, each.is_nullable(self.version))
        if self.flexible:
            self.tagged_section(cls, target)
        else:
            self.flush()
            self.line(f"{target}.unknown_tags = None")

    def default(self, each: Field) -> str:
        """Return an expression for a field that this version does not carry."""
        if each.default is not UNSET:
            return repr(each.default) if each.default is None else self.constant("D", each.default)
        return "[]" if isinstance(each.kind, Array) else f"{self.constant('T', each.kind)}()"

    def value(self, kind: Kind, target: str, name: str, nullable: bool) -> None:
        """Decode a value of any kind into `target`."""
        if isinstance(kind, Array):
            self.array(kind, target, name, nullable)
        elif isinstance(kind, type):
            self.nested(kind, target, nullable)
        elif kind.code:
            self.read(kind.code, target)
        else:
            self.sized(kind, target, name, nullable)

    def nested(self, cls: type[Message], target: str, nullable: bool, *, null: str = "c < 0") -> None:
        """Decode a struct inside another, with a marker `c` if it is nullable."""
        # The expression `null` distinguishes the marker of null from 1, that of a value.
        local = self.fresh("m")
        if not nullable:
            self.struct(cls, local)
            self.flush()
            self.line(f"{target} = {local}")
            return
        self.read("b", "c")
        self.flush()
        with self.block(f"if {null}:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.struct(cls, local)
            self.flush()
            self.line(f"{target} = {local}")

    def sized(self, kind: Scalar, target: str, name: str, nullable: bool) -> None:
        """Decode a string, bytes or records."""
        self.prefix("h" if kind.name == "string" else "i")
        start = "p + 1" if self.flexible else "p"
        lengths = "long_string" if kind.name == "string" else "long_length"
        with self.present(target, name, nullable=nullable, lengths=lengths):
            self.line("q = p + c")
            self.line(f"{target} = {self.taken(kind, start, 'q')}")
            self.line("p = q")

    def prefix(self, code: str) -> None:
        """Read the first byte of a compact length, or the whole of an ordinary one, into `c`."""
        self.read("B" if self.flexible else code, "c")
        self.flush(on_prefix=self.flexible)

    @contextmanager
    def present(self, target: str, name: str, *, nullable: bool, lengths: str) -> Iterator[None]:
        """Surround the lines for a non-null value; `c` is its length from `prefix`, plus one if compact."""
        absent, null = ("not c", "p += 1") if self.flexible else ("c < 0", "")
        if nullable:
            with self.block(f"if {absent}:"):
                self.line(f"{target} = None")
                if null:
                    self.line(null)
            with self.block("else:"):
                if self.flexible:
                    with self.block("if c > 127:"):
                        self.line(f"c, p = {lengths}(b, p)")
                yield
            return
        if self.flexible:
            with self.block("if c > 127:"):
                self.line(f"c, p = {lengths}(b, p)")
        with self.block(f"{'elif' if self.flexible else 'if'} {absent}:"):
            self.line(f"raise Malformed({name + ' is null'!r})")
        yield

    def taken(self, kind: Scalar, start: str, end: str) -> str:
        """Return an expression for a string, bytes or records between two positions."""
        piece = f"b[{start}:{end}]"
        if kind.name == "records":
            return piece if self.from_view else f"memoryview(b)[{start}:{end}]"
        if kind.name == "string":
            return f"str({piece}, 'utf-8')" if self.from_view else f"{piece}.decode()"
        return f"bytes({piece})" if self.from_view else piece

    def array(self, kind: Array, target: str, name: str, nullable: bool) -> None:
        """Decode an array; its count is checked before any element is made."""
        self.prefix("i")
        element = kind.element
        with self.present(target, name, nullable=nullable, lengths="long_length"):
            if self.flexible:
                self.line("p += 1")
                self.line("c -= 1")
            if not isinstance(element, type):
                self.take_values()
            if isinstance(element, Scalar) and primitives.is_number(element):
                self.numbers(element, target)
                return
            size = primitives.smallest_size(element, self.version, self.flexible)
            with self.block(f"if c * {size} > n - p:" if size else f"if c > {primitives.EMPTY_ELEMENTS_AT_MOST}:"):
                self.line(f"raise Malformed('{name} has ' + str(c) + ' elements in ' + str(n - p) + ' bytes')")
            if element is UUID:
                piece = "bytes(b[i:i + 16])" if self.from_view else "b[i:i + 16]"
                self.line("q = p + c * 16")
                self.line(f"{target} = [{piece} for i in range(p, q, 16)]")
                self.line("p = q")
                return
            if self.most_rows is not None and isinstance(element, type):
                # The bound holds over all arrays of the message, nested ones included.
                self.line("rows -= c")
                with self.block("if rows < 0:"):
                    self.line(f"raise Malformed('more than {self.most_rows} rows')")
            elements, item = self.fresh("a"), self.fresh("e")
            self.line(f"{target} = {elements} = []")
            with self.block("for _ in range(c):"):
                self.value(element, item, f"an element of {name}", False)
                self.flush()
                self.line(f"{elements}.append({item})")

    def take_values(self) -> None:
        """Emit the count of `c` values that are not structs, and the check of their limit."""
        if self.most_rows is not None:
            self.line("values -= c")
            with self.block("if values < 0:"):
                self.line(f"raise Malformed('more than {self.most_rows * VALUES_PER_ROW} values')")

    def numbers(self, element: Scalar, target: str) -> None:
        """Decode `c` numbers of one size by one call."""
        with self.block(f"if c <= {primitives.PREPARED_COUNT}:"):
            self.line(f"{target} = [*{self.number_unpackers(element.code)}[c](b, p)]")
        with self.block("else:"):
            self.line(f"{target} = read_numbers(b, p, c, {element.code!r})")
        self.line(f"p += c * {element.size}" if element.size > 1 else "p += c")

    def tagged_section(self, cls: type[Message], target: str) -> None:
        """Decode the tagged fields at the end of a struct."""
        known = tagged_fields(cls, self.version, self.flexible)
        for each in known:
            self.line(f"{target}.{each.name} = {self.default(each)}")
        self.read("B", "c")
        self.flush(on_prefix=True)
        with self.block("if c:"):
            self.take_values()
            if known:
                self.known_tags(known, target)
            else:
                self.line(f"{target}.unknown_tags, p = read_tags(b, p)")
        with self.block("else:"):
            self.line(f"{target}.unknown_tags = None")
            self.line("p += 1")

    def known_tags(self, known: list[Field], target: str) -> None:
        """Decode a tagged section of which some fields are declared."""
        count, seen, tag, end = self.fresh("t"), self.fresh("s"), self.fresh("g"), self.fresh("z")
        self.line(f"{count}, p = read_uvarint(b, p)")
        with self.block(f"if 2 * {count} > n - p:"):
            self.line(f"raise Malformed(str({count}) + ' tagged fields in ' + str(n - p) + ' bytes')")
        with self.block(f"if {count} > {primitives.TAGS_AT_MOST}:"):
            self.line(f"raise Malformed(str({count}) + ' tagged fields; {primitives.TAGS_AT_MOST} are allowed')")
        self.line(f"{target}.unknown_tags = None")
        self.line(f"{seen} = set()")
        with self.block(f"for _ in range({count}):"):
            self.line(f"{tag}, {end}, p = read_tag(b, p, {seen})")
            self.line(f"{seen}.add({tag})")
            for index, each in enumerate(known):
                with self.block(f"{'elif' if index else 'if'} {tag} == {each.tag}:"):
                    if isinstance(each.kind, type):
                        # Kafka's null is int8 -1 between fields, but the unsigned varint 0 in a tagged one.
                        self.nested(each.kind, f"{target}.{each.name}", each.is_nullable(self.version), null="c <= 0")
                    else:
                        self.value(each.kind, f"{target}.{each.name}", each.name, each.is_nullable(self.version))
                    self.flush()
            with self.block("else:"):
                with self.block(f"if {target}.unknown_tags is None:"):
                    self.line(f"{target}.unknown_tags = {{}}")
                self.line(f"{target}.unknown_tags[{tag}] = bytes(b[p:{end}])")
                self.line(f"p = {end}")
            # A value that is shorter or longer than its announced size is malformed.
            with self.block(f"if p != {end}:"):
                self.line(f"raise Malformed('tagged field ' + str({tag}) + ' has another size than announced')")

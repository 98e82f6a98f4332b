"""The compiler of encoders: makes one straight-line function of (message class, version).

Laws: nested structs are inlined; a value that cannot be encoded ends in an exception that the function turns into
`LocalProtocolError`, and the output is left as it was; a tagged field is written only when it differs from its default.
Source: KIP-482 for compact forms and tagged sections; Kafka's int8 marker before a nullable struct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kohort.errors import LocalProtocolError
from kohort.wire import primitives
from kohort.wire.primitives import PREPARED_COUNT, Buffer, Emitter, is_number, plain_fields, tagged_fields
from kohort.wire.schema import UNSET, UUID, Array, Field, Kind, Message, Scalar, schema_of

#: (message, output) → None.
Encoder = Callable[[Any, bytearray], None]
#: message → buffers that make up its bytes.
PartsEncoder = Callable[[Any], list[Buffer]]
#: (message, its error) → the error to raise.
Explain = Callable[[Any, Exception], LocalProtocolError]

#: Records of at most this many bytes are copied, because that costs less than a separate buffer.
COPY_AT_MOST: Final = 1024


def compile_encoder(cls: type[Message], version: int, explain: Explain) -> Encoder:
    """Compile a function that appends a message to a bytearray."""
    emitter = _EncoderEmitter(cls, version, explain)
    with emitter.block("def encode(m, o):"):
        emitter.line("start = len(o)")
        with emitter.block("try:"):
            emitter.struct(cls, "m")
            emitter.flush()
            emitter.line("return")
        with emitter.block("except failures as error:"):
            # If a message cannot be encoded the output is reset.
            emitter.line("del o[start:]")
            emitter.line("raise explain(m, error) from None")
    return emitter.compile("encode", f"encoder of {cls.__name__} version {version}")


def compile_parts_encoder(cls: type[Message], version: int, explain: Explain) -> PartsEncoder:
    """Compile a function that returns buffers; long RECORDS are separate buffers, without a copy."""
    emitter = _EncoderEmitter(cls, version, explain)
    emitter.records_apart = True
    with emitter.block("def encode(m):"):
        emitter.line("parts = []")
        emitter.line("o = bytearray()")
        with emitter.block("try:"):
            emitter.struct(cls, "m")
            emitter.flush()
            with emitter.block("if o:"):
                emitter.line("parts.append(o)")
            emitter.line("return parts")
        with emitter.block("except failures as error:"):
            emitter.line("raise explain(m, error) from None")
    return emitter.compile("encode", f"parts encoder of {cls.__name__} version {version}")


class _EncoderEmitter(Emitter):
    """The writer of one encoder's source.

    In the source, `o` is the output (`out` names another one inside a tagged field), `v` the value at hand and `c` its
    length, plus one in the compact form.
    """

    def __init__(self, cls: type[Message], version: int, explain: Explain) -> None:
        super().__init__(version, schema_of(cls).is_flexible(version))
        self.out = "o"
        self.records_apart = False
        self.namespace.update(
            Unencodable=primitives.Unencodable,
            failures=(struct.error, AttributeError, TypeError, ValueError, OverflowError),
            explain=explain,
            long_length=primitives.encode_long_length,
            long_string=primitives.encode_long_string_length,
            encode_tags=primitives.encode_tagged_section,
            encode_numbers=primitives.encode_numbers,
            records_size=primitives.records_size,
            records_buffers=primitives.records_buffers,
        )

    def write(self, code: str, expression: str) -> None:
        """Append a value of fixed size."""
        self.run.append((code, expression))

    def flush(self) -> None:
        """Write out the run."""
        self.write_run(self.run)
        self.run = []

    def write_run(self, run: list[tuple[str, str]]) -> None:
        """Write a line that appends the values of `run`."""
        if len(run) == 1 and run[0][0] == "B":
            self.line(f"{self.out}.append({run[0][1]})")
        elif run:
            values = ", ".join(expression for _, expression in run)
            self.line(f"{self.out} += {self.packer([code for code, _ in run])}({values})")

    def struct(self, cls: type[Message], source: str) -> None:
        """Encode the struct named `source`."""
        for each in plain_fields(cls, self.version):
            with self.form_of(each):
                self.value(each.kind, f"{source}.{each.name}", each.is_nullable(self.version))
        if self.flexible:
            self.tagged_section(cls, source)

    def value(self, kind: Kind, source: str, nullable: bool) -> None:
        """Encode a value of any kind."""
        if isinstance(kind, Array):
            with self.present(source, nullable, "i"):
                self.array(kind.element)
        elif isinstance(kind, type):
            self.nested(kind, source, nullable)
        elif kind is UUID:
            local = self.fresh("u")
            self.line(f"{local} = {source}")
            with self.block(f"if len({local}) != 16:"):
                self.line("raise Unencodable('a UUID has 16 bytes')")
            self.write("16s", local)
        elif kind.code:
            self.write(kind.code, source)
        else:
            self.sized(kind, source, nullable)

    def nested(self, cls: type[Message], source: str, nullable: bool, *, null: int = 255) -> None:
        """Encode a struct inside another; a nullable one has a marker before it, `null` or 1."""
        local = self.fresh("m")
        if nullable:
            self.flush()
        self.line(f"{local} = {source}")
        if not nullable:
            self.struct(cls, local)
            return
        with self.block(f"if {local} is None:"):
            self.line(f"{self.out}.append({null})")
        with self.block("else:"):
            self.write("B", "1")
            self.struct(cls, local)
            self.flush()

    def sized(self, kind: Scalar, source: str, nullable: bool) -> None:
        """Encode a string, bytes or records."""
        convert, size = "", "len(v)"
        if kind.name == "string":
            convert = ".encode()"
        elif kind.name == "records":
            size = "records_size(v)"
        with self.present(source, nullable, "h" if kind.name == "string" else "i", convert=convert, size=size):
            if kind.name == "records":
                self.records()
            else:
                self.line(f"{self.out} += v")

    def records(self) -> None:
        """Append records; as parts of their own where that is asked for and they are long."""
        if not self.records_apart or self.out != "o":
            with self.block("for v in records_buffers(v):"):
                self.line(f"{self.out} += v")
            return
        with self.block(f"if c <= {COPY_AT_MOST}:"), self.block("for v in records_buffers(v):"):
            self.line("o += v")
        with self.block("else:"):
            self.line("parts.append(o)")
            self.line("parts += records_buffers(v)")
            self.line("o = bytearray()")

    @contextmanager
    def present(
        self, source: str, nullable: bool, code: str, *, convert: str = "", size: str = "len(v)"
    ) -> Iterator[None]:
        """Surround the lines that append a non-null `v`; its length prefix joins the run before it."""
        run, self.run = self.run, []
        if not nullable:
            self.line(f"v = {source}{convert}")
            self.length(run, code, size)
            yield
            self.flush()
            return
        self.line(f"v = {source}")
        with self.block("if v is None:"):
            # KIP-482: a compact length of 0 means null, otherwise -1 does.
            self.write_run([*run, ("B", "0") if self.flexible else (code, "-1")])
        with self.block("else:"):
            if convert:
                self.line(f"v = v{convert}")
            self.length(run, code, size)
            yield
            self.flush()

    def length(self, run: list[tuple[str, str]], code: str, size: str) -> None:
        """Append the values of `run` and the length of `v`."""
        if not self.flexible:
            self.line(f"c = {size}")
            self.write_run([*run, (code, "c")])
            return
        self.line(f"c = {size} + 1")
        # Lengths below 128 are one byte of varint, and join the run.
        with self.block("if c < 128:"):
            self.write_run([*run, ("B", "c")])
        with self.block("else:"):
            self.write_run(run)
            self.line(f"{self.out} += {'long_string' if code == 'h' else 'long_length'}(c)")

    def array(self, element: Scalar | type[Message]) -> None:
        """Encode the elements of `v`; `c` is their number, plus one in the compact form."""
        if isinstance(element, Scalar) and is_number(element):
            extra = 1 if self.flexible else 0
            packers = self.number_packers(element.code)
            with self.block(f"if c <= {PREPARED_COUNT + extra}:"):
                self.line(f"{self.out} += {packers}[c - 1](*v)" if extra else f"{self.out} += {packers}[c](*v)")
            with self.block("else:"):
                self.line(f"{self.out} += encode_numbers(v, {element.code!r})")
            return
        item = self.fresh("e")
        with self.block(f"for {item} in v:"):
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, False)
            self.flush()

    def tagged_section(self, cls: type[Message], source: str) -> None:
        """Encode the tagged fields at the end of a struct."""
        known = tagged_fields(cls, self.version, self.flexible)
        if not known:
            self.write("B", "0")
            self.flush()
            with self.block(f"if {source}.unknown_tags:"):
                self.line(f"{self.out}[-1:] = encode_tags({source}.unknown_tags)")
            return
        self.flush()
        tags = self.fresh("t")
        self.line(f"{tags} = None")
        for each in known:
            self.known_tag(each, f"{source}.{each.name}", tags)
        with self.block(f"if {tags} is None and not {source}.unknown_tags:"):
            self.line(f"{self.out}.append(0)")
        with self.block("else:"):
            self.line(f"{self.out} += encode_tags({source}.unknown_tags, {tags})")

    def known_tag(self, each: Field, source: str, tags: str) -> None:
        """Encode one declared tagged field into an output of its own, unless it holds its default."""
        with self.block(f"if {self.differs(each, source)}:"):
            outer, self.out = self.out, self.fresh("o")
            self.line(f"{self.out} = bytearray()")
            if isinstance(each.kind, type):
                # Kafka's null is int8 -1 between fields, but the unsigned varint 0 in a tagged one.
                self.nested(each.kind, source, each.is_nullable(self.version), null=0)
            else:
                self.value(each.kind, source, each.is_nullable(self.version))
            self.flush()
            with self.block(f"if {tags} is None:"):
                self.line(f"{tags} = {{}}")
            self.line(f"{tags}[{each.tag}] = {self.out}")
            self.out = outer

    def differs(self, each: Field, source: str) -> str:
        """Return an expression that is true if the field does not hold its default."""
        if each.default is None:
            return f"{source} is not None"
        if each.default is UNSET and isinstance(each.kind, Array):
            return f"{source} is None or len({source})"
        if isinstance(each.kind, type):
            # Compared field by field in place: the general `==` of messages costs more than encoding the struct.
            differences = [self.differs(part, f"{source}.{part.name}") for part in each.kind._fields]
            null = [f"{source} is None"] if each.is_nullable(self.version) else []
            return " or ".join([*null, *differences, f"{source}.unknown_tags"])
        return f"{source} != {self.constant('D', each.make_default())}"

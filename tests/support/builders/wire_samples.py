"""Messages that exist in no protocol: each brings together features that Kafka's own spread over many."""

from __future__ import annotations

from kohort.wire.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Message,
    array,
    field,
    message,
)


@message(versions="0-1", flexible="1+")
class Scalars(Message):
    a_bool: bool = field(BOOL)
    an_int8: int = field(INT8)
    an_int16: int = field(INT16, default=-1)
    a_uint16: int = field(UINT16)
    an_int32: int = field(INT32)
    a_uint32: int = field(UINT32)
    an_int64: int = field(INT64)
    a_float64: float = field(FLOAT64)
    a_uuid: bytes = field(UUID)
    a_string: str = field(STRING)
    some_bytes: bytes = field(BYTES)
    some_records: memoryview | bytes | None = field(RECORDS, nullable=0)
    after: int = field(INT8)


class Leaf(Message):
    number: int = field(INT32, default=7)
    since_two: str = field(STRING, since=2)
    until_one: int = field(INT16, until=1)


class Branch(Message):
    name: str | None = field(STRING, nullable=0)
    leaves: list[Leaf] = field(array(Leaf))
    ids: list[bytes] = field(array(UUID))
    leaf: Leaf | None = field(Leaf, nullable=1, default=None)


@message(versions="0-3", flexible="2+")
class Tree(Message):
    plain: Leaf = field(Leaf)
    branches: list[Branch] | None = field(array(Branch), nullable=0)
    names: list[str] | None = field(array(STRING), nullable=1)
    bools: list[bool] = field(array(BOOL))
    int16s: list[int] = field(array(INT16), nullable=2)
    int64s: list[int] = field(array(INT64))
    uint32s: list[int] = field(array(UINT32))
    floats: list[float] = field(array(FLOAT64))
    blobs: list[bytes] = field(array(BYTES))


class Tagged(Message):
    inner: int = field(INT32)
    inner_tag: str = field(STRING, tag=0)


@message(versions="0-4", flexible="1+")
class Tags(Message):
    first: int = field(INT32)
    became_tagged: str | None = field(STRING, nullable=0, tag=5, tag_since=3, default="normal")
    number: int = field(INT64, tag=0, since=1, default=-1)
    maybe: list[int] | None = field(array(INT32), tag=1, since=1, nullable=1, default=None)
    names: list[str] = field(array(STRING), tag=2, since=2)
    part: Tagged = field(Tagged, tag=3, since=1)
    maybe_part: Tagged | None = field(Tagged, tag=4, since=1, nullable=1, default=None)
    parts: list[Tagged] = field(array(Tagged), tag=300, since=1, until=3)
    payload: memoryview | bytes | None = field(RECORDS, tag=6, since=1, nullable=1)
    last: list[Tagged] = field(array(Tagged))


class Empty(Message):
    pass


@message(versions="0-1", flexible="1+")
class Empties(Message):
    nothing: list[Empty] = field(array(Empty))
    maybe: Empty | None = field(Empty, nullable=0, default=None)


@message(versions="0-1", flexible="1+")
class Payload(Message):
    topic: str = field(STRING)
    records: memoryview | bytes | list[bytes] | None = field(RECORDS, nullable=0)
    after: int = field(INT32)


SAMPLES: list[type[Message]] = [Scalars, Tree, Tags, Empties, Payload]

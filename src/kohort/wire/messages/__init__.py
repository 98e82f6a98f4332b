"""Kafka's messages, one module per API; `kohort.wire.registry` imports them when first needed.

Laws: declarations only, as typed classes that are their own schema; an attribute is Kafka's field name in snake_case,
in the order of the wire; the versions are those of Apache Kafka 4.3.
Source: the message definitions of Apache Kafka, with which the parity tests compare every field.
"""

from __future__ import annotations

from collections.abc import Sequence

#: A field of record batches: a decoded one is a `memoryview` of the input or None, an encoder takes any buffer,
#: or several that belong one after the other.
RecordBuffers = memoryview | bytes | bytearray | Sequence[memoryview | bytes | bytearray] | None

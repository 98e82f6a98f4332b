"""Apache Kafka's own message classes, asked through one Java process.

Laws: a message goes over as JSON under Kafka's names and as our bytes; what comes back are Kafka's bytes for both.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kohort.wire.schema import Array, Kind, Message, schema_of
from support.builders.wire_messages import kafka_fields_of
from support.peers.apache import java_program

PROGRAM = Path(__file__).with_name("KafkaMessages.java")


class Answer(NamedTuple):
    """What Kafka makes of one message."""

    #: Bytes that it makes of the values.
    built: bytes
    #: Bytes that it makes of what it read in our bytes.
    read_back: bytes
    #: Whether the values and what it read are the same to it.
    same: bool


class KafkaMessages:
    """A Java process that encodes with Kafka's classes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, message: Message, version: int, data: bytes) -> Answer:
        """Hand over a message and our bytes of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        text = json.dumps(as_json(message, version))
        self._process.stdin.write(f"{java_name(type(message))}\t{version}\t{data.hex()}\t{text}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n").split("\t")
        assert len(answer) == 3, f"Kafka refuses {message!r} v{version}: {answer}"
        return Answer(bytes.fromhex(answer[0]), bytes.fromhex(answer[1]), answer[2] == "true")


@contextmanager
def kafka_messages() -> Iterator[KafkaMessages]:
    """Start Java with Kafka's jars; skips the calling test where they or a JDK are missing."""
    with subprocess.Popen(java_program(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield KafkaMessages(process)


def java_name(cls: type[Message]) -> str:
    """The generated class: group records in the coordinator's package, everything else among the clients' messages."""
    kind = schema_of(cls).kind
    if kind.startswith("coordinator-"):
        coordinator = "transaction" if cls.__name__.startswith("Transaction") else "group"
        return f"org.apache.kafka.coordinator.{coordinator}.generated.{cls.__name__}"
    suffix = "Data" if kind in ("request", "response") else ""
    return f"org.apache.kafka.common.message.{cls.__name__}{suffix}"


def as_json(message: Message, version: int) -> dict[str, Any]:
    """A message in the form of Kafka's JSON converters, with every field of the version."""
    found = {}
    for each in kafka_fields_of(type(message)):
        if each.is_in(version):
            first, *others = each.name.split("_")
            name = first + "".join(word.capitalize() for word in others)
            found[name] = _value(each.kind, getattr(message, each.name), version)
    return found


def _value(kind: Kind, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_value(kind.element, each, version) for each in value]
    if isinstance(kind, type):
        return as_json(value, version)
    if kind.name == "uuid":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode() if kind.name in ("bytes", "records") else value

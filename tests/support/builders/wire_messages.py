"""Every message class that kohort declares, headers apart; Kafka's and our own."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import kohort.wire.messages
from kohort.wire.private import FIRST_TAG
from kohort.wire.schema import Field, Message, fields_of, schema_of


def message_classes() -> list[type[Message]]:
    """Kafka's classes marked with `@message` in `kohort.wire.messages`, in the order of their names."""
    return [cls for cls in all_message_classes() if (schema_of(cls).key or 0) < FIRST_TAG]


def kafka_fields_of(cls: type[Message]) -> list[Field]:
    """The fields that are Kafka's."""
    return [each for each in fields_of(cls) if each.tag is None or each.tag < FIRST_TAG]


def all_message_classes() -> list[type[Message]]:
    """Kafka's and our own, in the order of their names."""
    found = {}
    for module in pkgutil.iter_modules(kohort.wire.messages.__path__):
        if module.name == "header":
            continue
        loaded = importlib.import_module(f"kohort.wire.messages.{module.name}")
        for each in vars(loaded).values():
            if isinstance(each, type) and issubclass(each, Message) and "_schema" in vars(each):
                found[each.__name__] = each
    return [found[name] for name in sorted(found)]


def messages_and_versions() -> Iterator[tuple[type[Message], int]]:
    """Every message class of Kafka's with each of its versions."""
    for cls in message_classes():
        schema = schema_of(cls)
        for version in range(schema.first_version, schema.last_version + 1):
            yield cls, version

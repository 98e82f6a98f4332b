"""Every message class that kohort declares, headers apart."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import kohort.wire.messages
from kohort.wire.schema import Message, schema_of


def message_classes() -> list[type[Message]]:
    """The classes marked with `@message` in `kohort.wire.messages`, in the order of their names."""
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
    """Every message class with each of its versions."""
    for cls in message_classes():
        schema = schema_of(cls)
        for version in range(schema.first_version, schema.last_version + 1):
            yield cls, version

"""Our declarations against the definitions inside Apache Kafka's own jars, field by field and version by version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kohort.wire.schema import INT32, STRING, Message, array, field, fields_of, message, schema_of
from support.builders.wire_messages import message_classes
from support.peers.apache import kafka_libs
from support.peers.kafka_schemas import (
    declared_layout,
    expected_layout,
    read_definitions,
    snake_case,
    stable_versions_of,
    versions_of,
    without_comments,
)

pytestmark = [pytest.mark.interop, pytest.mark.apache]

CLASSES = message_classes()


@pytest.fixture(scope="module")
def definitions() -> dict[str, dict[str, Any]]:
    return read_definitions(kafka_libs())


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_head_is_kafkas(cls: type[Message], definitions: dict[str, dict[str, Any]]) -> None:
    """Key, purpose, versions and the first flexible version are those of the definition."""
    definition, schema = definitions[cls.__name__], schema_of(cls)
    flexible = versions_of(definition["flexibleVersions"])

    assert schema.key == definition.get("apiKey")
    assert schema.kind == definition["type"]
    assert range(schema.first_version, schema.last_version + 1) == stable_versions_of(definitions, cls.__name__)
    assert schema.flexible_since == (flexible.start if flexible else None)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_version_has_kafkas_fields(cls: type[Message], definitions: dict[str, dict[str, Any]]) -> None:
    """Names, order, kinds, nulls, tags and defaults, down to the innermost struct."""
    for version in stable_versions_of(definitions, cls.__name__):
        assert declared_layout(cls, version) == expected_layout(definitions[cls.__name__], version), f"v{version}"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_field_is_without_a_version(cls: type[Message]) -> None:
    """A field that no version carries would be silently dropped, whatever it was set to."""
    schema = schema_of(cls)
    for each in fields_of(cls):
        assert any(each.is_in(version) for version in range(schema.first_version, schema.last_version + 1)), each


def test_records_of_coordinators_are_complete(definitions: dict[str, dict[str, Any]]) -> None:
    """Every record of groups and transactions is declared; share and streams groups are not ours."""
    ours = {cls.__name__ for cls in CLASSES if schema_of(cls).kind.startswith("coordinator-")}
    theirs = {
        name
        for name, definition in definitions.items()
        if definition["type"].startswith("coordinator-") and not name.startswith(("Share", "Streams"))
    }
    assert ours == theirs


class _Part(Message):
    id: int = field(INT32)


@message(key=7, kind="request", versions="0-2", flexible="2+")
class _Sample(Message):
    name: str | None = field(STRING, nullable=1, default=None)
    rank: int = field(INT32, since=1, default=5)
    parts: list[_Part] = field(array(_Part), since=2, tag=0)


DEFINITION = """// Licensed
{ "apiKey": 7, "type": "request", "name": "_Sample", "validVersions": "0-2", "flexibleVersions": "2+", "fields": [
  // a comment
  { "name": "Name", "type": "string", "versions": "0+", "nullableVersions": "1+", "default": "null" },
  { "name": "Rank", "type": "int32", "versions": "1+", "default": "5" },
  { "name": "Parts", "type": "[]_Part", "versions": "2+", "tag": 0, "taggedVersions": "2+", "fields": [
    { "name": "Id", "type": "int32", "versions": "0+" } ]} ] }
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "Rank"', '"name": "Row"'),
        ('"int32", "versions": "1+"', '"int64", "versions": "1+"'),
        ('"versions": "1+"', '"versions": "0+"'),
        ('"versions": "1+"', '"versions": "1"'),
        ('"nullableVersions": "1+"', '"nullableVersions": "0+"'),
        ('"default": "5"', '"default": "-1"'),
        (', "default": "null"', ""),
        ('"tag": 0', '"tag": 1'),
        ('"tag": 0, "taggedVersions": "2+", ', ""),
        ('"name": "Id", "type": "int32", "versions": "0+"', '"name": "Id", "type": "int32", "versions": "3+"'),
        ('"type": "[]_Part"', '"type": "[]Other"'),
    ],
)
def test_a_difference_would_be_seen(old: str, new: str) -> None:
    """The comparison itself: equal where the texts say the same, and sensitive to each kind of change."""

    def differs(text: str) -> bool:
        definition = json.loads(without_comments(text))
        return any(declared_layout(_Sample, v) != expected_layout(definition, v) for v in range(3))

    assert old in DEFINITION
    assert not differs(DEFINITION)
    assert differs(DEFINITION.replace(old, new))


def test_names_are_turned_as_the_declarations_write_them() -> None:
    assert snake_case("ThrottleTimeMs") == "throttle_time_ms"
    assert snake_case("LastKnownElr") == "last_known_elr"
    assert snake_case("commitTimestamp") == "commit_timestamp"

"""What a declaration says of itself."""

from __future__ import annotations

import pytest

from kohort.wire.schema import INT32, RECORDS, STRING, Message, array, field, fields_of, kind_name, message, schema_of
from support.builders.wire_samples import Leaf, Tags, Tree


def test_a_message_knows_its_key_kind_and_versions() -> None:
    @message(key=68, kind="request", versions="1-3", flexible="2+")
    class Sample(Message):
        pass

    schema = schema_of(Sample)
    assert (schema.key, schema.kind, schema.first_version, schema.last_version) == (68, "request", 1, 3)
    assert [schema.is_flexible(version) for version in (1, 2, 3)] == [False, True, True]


@pytest.mark.parametrize("flexible", [None, "none"])
def test_a_message_may_never_be_flexible(flexible: str | None) -> None:
    @message(versions="3", flexible=flexible)
    class Sample(Message):
        pass

    assert schema_of(Sample).first_version == schema_of(Sample).last_version == 3
    assert not schema_of(Sample).is_flexible(3)


def test_a_struct_has_no_versions_of_its_own() -> None:
    with pytest.raises(TypeError, match="Leaf is a struct"):
        schema_of(Leaf)


def test_fields_stand_in_the_order_of_the_wire_with_their_versions() -> None:
    assert [each.name for each in fields_of(Leaf)] == ["number", "since_two", "until_one"]
    number, since_two, until_one = fields_of(Leaf)
    assert [[each.is_in(version) for version in (1, 2)] for each in (number, since_two, until_one)] == [
        [True, True],
        [False, True],
        [True, False],
    ]


def test_a_field_may_become_nullable_and_tagged_in_a_later_version() -> None:
    fields = {each.name: each for each in fields_of(Tags)}
    assert [fields["became_tagged"].is_tagged(version) for version in range(5)] == [False, False, False, True, True]
    assert [fields["parts"].is_tagged(version) for version in range(5)] == [False, True, True, True, False]
    names = next(each for each in fields_of(Tree) if each.name == "names")
    assert [names.is_nullable(version) for version in range(3)] == [False, True, True]


def test_kinds_have_kafkas_names() -> None:
    assert [kind_name(kind) for kind in (INT32, array(STRING), Leaf, array(Leaf))] == [
        "int32",
        "[]string",
        "Leaf",
        "[]Leaf",
    ]


def test_defaults_are_zero_empty_or_a_struct_of_defaults() -> None:
    class Sample(Message):
        number: int = field(INT32)
        given: int = field(INT32, default=5)
        text: str = field(STRING)
        nothing: str | None = field(STRING, nullable=0, default=None)
        records: bytes | None = field(RECORDS, nullable=0)
        listed: list[int] = field(array(INT32), default=[])
        part: Leaf = field(Leaf)

    made = Sample()
    assert (made.number, made.given, made.text, made.nothing, made.records) == (0, 5, "", None, None)
    assert made.listed == []
    assert made.listed is not Sample().listed
    assert made.part == Leaf(number=7)
    assert made.unknown_tags is None
    assert [each.make_default() for each in fields_of(Sample)] == [0, 5, "", None, None, [], Leaf()]


def test_a_message_has_no_room_for_other_attributes_and_no_hash() -> None:
    assert not hasattr(Leaf(), "__dict__")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Leaf())

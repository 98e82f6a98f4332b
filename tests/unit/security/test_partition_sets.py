"""Sets of partitions in few bytes, beside Python's own sets."""

from __future__ import annotations

import random

import pytest

from kohort.security.capabilities.partition_sets import LAST_PARTITION, FormError, PartitionSet, Reader, encode_number
from support.depth import SEED, at_depth


def random_set(chance: random.Random) -> set[int]:
    many = chance.choice((1, 3, 20, 200))
    if chance.random() < 0.4:
        first = chance.randrange(5)
        return set(range(first, first + many, chance.choice((1, 2, 3, 7))))
    return set(chance.sample(range(chance.choice((200, 400, 3_000))), many))


def test_set_is_what_was_written() -> None:
    """Members, runs and bytes, over random sets and strides."""
    chance = random.Random(SEED)
    for _ in range(at_depth(150, 30_000)):
        chosen = random_set(chance)
        written = PartitionSet.of(chosen)
        assert {each for each in range(3_010) if each in written} == chosen
        assert {each for first, last in written.ranges() for each in range(first, last + 1)} == chosen
        assert PartitionSet(written.written) == PartitionSet.of(written.ranges()) == written


def test_set_takes_the_shorter_form() -> None:
    assert len(PartitionSet.of([(0, LAST_PARTITION)]).written) < 10
    assert len(PartitionSet.of(range(0, 100_000, 10)).written) < 10
    assert len(PartitionSet.of(random.Random(1).sample(range(8_000), 4_000)).written) <= 1_003
    assert len(PartitionSet.of([0, LAST_PARTITION]).written) < 12


def test_ends_of_the_numbers_of_partitions() -> None:
    both = PartitionSet.of([0, LAST_PARTITION])
    assert [each in both for each in (-1, 0, 1, LAST_PARTITION, LAST_PARTITION + 1, "0")] == [
        False,
        True,
        False,
        True,
        False,
        False,
    ]
    assert [each in PartitionSet.of([]) for each in (-1, 0)] == [False, False]
    assert str(PartitionSet.of([])) == "none"
    for beyond in (-1, LAST_PARTITION + 1, (3, 2)):
        with pytest.raises(ValueError, match="are expected, the lower one first"):
            PartitionSet.of([beyond])


def test_text_of_a_set_is_short() -> None:
    assert repr(PartitionSet.of(range(0, 10_000, 2))) == "PartitionSet(0, 2, 4, 6, 8, 10, 12, 14, ...)"


def test_few_bytes_for_many_partitions_cost_few_steps() -> None:
    """A holder may write that runs repeat 2 billion times: nothing is made of them."""
    wide = PartitionSet(b"\x00\x00\x03" + encode_number(1_073_741_821) + b"\x02")
    assert [each in wide for each in (0, 1, LAST_PARTITION - 3)] == [True, False, True]
    assert str(wide).startswith("0, 2, 4")


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"\x02", b"\x00\x00", b"\x00\x00\x00", b"\x00\x00\x03", b"\x00\x00\x03\x00", b"\x00\x00\x03\x00\x01",
        b"\x00\x80\x00\x02", b"\x00\x00\x02" + encode_number(LAST_PARTITION) + b"\x02",
        b"\x00\x00\x03" + encode_number(LAST_PARTITION) + b"\x02", b"\x01", b"\x01\x00", b"\x01\x00\x00",
        b"\x01\x00\x02", b"\x01\x00\x01\x00", b"\x01" + encode_number(LAST_PARTITION) + b"\x03",
    ],
)  # fmt: skip
def test_other_bytes_are_no_set(wrong: bytes) -> None:
    with pytest.raises(FormError):
        PartitionSet(wrong)


def test_no_bytes_raise_anything_else() -> None:
    """What is read agrees with itself."""
    chance = random.Random(SEED)
    read = 0
    for _ in range(at_depth(5_000, 300_000)):
        try:
            found = PartitionSet(bytes([chance.randrange(2)]) + bytes(chance.choices(range(12), k=chance.randrange(8))))
        except FormError:
            continue
        read += 1
        if (ranges := list(found.ranges())) and ranges[-1][1] < 400:
            listed = {each for first, last in ranges for each in range(first, last + 1)}
            assert listed == {each for each in range(400) if each in found}
    assert read


def test_number_has_one_form() -> None:
    for value in (0, 1, 127, 128, (1 << 63) - 1):
        reader = Reader(encode_number(value))
        assert reader.number() == value
        assert reader.is_at_end
    for wrong in (b"", b"\x80", b"\x80\x00", b"\xff" * 10, encode_number(1 << 63), encode_number(1 << 70)):
        with pytest.raises(FormError):
            Reader(wrong).number()

"""What holds inputs to their time and memory can fail, and the same seed makes the same inputs."""

from __future__ import annotations

from random import Random

import pytest

from support.builders.fuzz import MOST_BYTES, MOST_CALLS, Bounds, Mutator


def test_an_input_that_takes_too_long_is_found() -> None:
    def act() -> None:
        for _ in range(5 * MOST_CALLS):
            len("")

    with pytest.raises(AssertionError, match="calls"):
        Bounds().hold(act)


def test_an_input_that_takes_too_much_memory_is_found() -> None:
    """More than this process has ever had, so that it grows."""
    held = [bytes([1]) * MOST_BYTES for _ in range(4)]
    bounds = Bounds()
    bounds.hold(lambda: None)
    with pytest.raises(AssertionError, match="MiB"):
        bounds.hold(lambda: bytes([1]) * (8 * MOST_BYTES))
    assert len(held) == 4


def test_inputs_are_those_of_their_seed() -> None:
    made = [[Mutator(Random(seed)).changed(bytes(100), [bytes(9)]) for _ in range(9)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]

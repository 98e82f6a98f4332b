"""The seeds whose worlds find a planted bug, which are played first: a bug that one world of fifty finds costs one.

`finding_seeds.json` has them by test. It says nothing about what is true: where its seeds no longer find a bug, since
worlds draw otherwise by now, all others are played after them. `NOTE_SEEDS=FILE pytest -n 0 tests/sim` writes another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).with_suffix(".json")
#: Those of this run, where they are to be written down.
_found: Final[dict[str, list[int]]] = {}


def seeds_to_play(count: int) -> Iterable[int]:
    """The seeds from 0 to `count`: those first that have found the bug of this test, the others in their order."""
    return dict.fromkeys([*_known().get(_test(), ()), *range(count)])


def note_seed(seed: int) -> None:
    """Write down, where that is asked for, that a seed has found the bug of this test."""
    if file := os.environ.get("NOTE_SEEDS"):
        _found[_test()] = sorted({*_found.get(_test(), ()), seed})
        lines = [f"{json.dumps(test)}: {json.dumps(seeds)}" for test, seeds in sorted(_found.items())]
        Path(file).write_text("{\n" + ",\n".join(lines) + "\n}\n")


@cache
def _known() -> dict[str, list[int]]:
    known: dict[str, list[int]] = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    return known


def _test() -> str:
    """The name of the test that runs, with its file."""
    return os.environ["PYTEST_CURRENT_TEST"].rpartition("/")[2].rpartition(" ")[0]

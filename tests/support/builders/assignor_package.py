"""A package with assignors, as a user would install it: a module, and the metadata that name its entry points."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.peers.restarts import wait_until
from support.waiting import PATIENCE_SECONDS

#: What the package has; `moody` does what the file `mood` beside it says.
SOURCE = '''
import os
import sys
import time
from array import array
from pathlib import Path

MOOD = Path(__file__).parent / "mood"


class First:
    """Everything goes to the first subscriber of each topic."""

    name = "first"

    def assign(self, group):
        owner = group.owner[:]
        for topic, start in enumerate(group.space.starts):
            for partition in range(start, start + group.space.counts[topic]):
                owner[partition] = group.subscribers[topic][0]
        return owner


class Dealt:
    """Partitions are dealt from the last member to the first."""

    def assign(self, group):
        count = len(group.members)
        return array("i", [count - 1 - partition % count for partition in range(len(group.space))])


class Moody(Dealt):
    name = "moody"

    def assign(self, group):
        write(MOOD.parent / "process", str(os.getpid()))
        good = super().assign(group)
        return MOODS[MOOD.read_text().strip()](group, good)


class Nameless(Dealt):
    pass


class Disguised(Dealt):
    name = "somebody else"


def write(path, text):
    """All or nothing, for whoever reads at this moment."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def fail(text):
    raise ValueError(text)


def wait(seconds, good):
    time.sleep(seconds)
    return good


def scribble(group, good):
    print("to standard output")
    os.write(1, b"raw bytes to where answers were")
    group.owner[:] = array("i", [99]) * len(group.owner)
    return good


MOODS = {
    "good": lambda group, good: good,
    "raises": lambda group, good: fail("no idea"),
    "raises much": lambda group, good: fail("x" * 1_000_000),
    "exits": lambda group, good: sys.exit(3),
    "dies": lambda group, good: os._exit(7),
    "crashes": lambda group, good: os.abort(),
    "short": lambda group, good: good[:-1],
    "twice": lambda group, good: good + good[:1],
    "nobody": lambda group, good: array("i", [-1]) * len(good),
    "stranger": lambda group, good: array("i", [99]) * len(good),
    "list": lambda group, good: list(good),
    "nothing": lambda group, good: None,
    "wide": lambda group, good: array("q", good),
    "big": lambda group, good: bytearray(8 * 2**30) and good,
    "slow": lambda group, good: wait(0.3, good),
    "asleep": lambda group, good: wait(600, good),
    # One call into C that keeps the interpreter to itself.
    "busy": lambda group, good: sum(range(10**12)) and good,
    "scribbles": scribble,
}
'''
ENTRY_POINTS = """
[kohort.assignors]
first = own_assignors:First
moody = own_assignors:Moody
nameless = own_assignors:Nameless
disguised = own_assignors:Disguised
broken = no_such_module:Assignor
uniform = own_assignors:First
"""


class AssignorPackage:
    """The package in a folder of its own, found by this process and by those that it starts."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        metadata = folder / "own_assignors-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own-assignors\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
        (folder / "own_assignors.py").write_text(SOURCE)
        self._mood = folder / "mood"
        self._process = folder / "process"
        self.is_in("good")
        patch.syspath_prepend(folder)
        # The one of an earlier test knows another folder.
        patch.delitem(sys.modules, "own_assignors", raising=False)
        known = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *([known] if known else [])]))

    @property
    def process_id(self) -> int | None:
        """Of the process in which `moody` was asked last, `None` if nobody has asked yet."""
        return int(self._process.read_text()) if self._process.exists() else None

    def is_in(self, mood: str) -> None:
        """What `moody` does from now on."""
        # All or nothing, for the process that reads at this moment.
        fresh = self._mood.with_suffix(".next")
        fresh.write_text(mood)
        fresh.replace(self._mood)


def is_gone(process_id: int) -> bool:
    """Whether there is no such process any more."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until_gone(process_id: int) -> None:
    """A process that is nobody's child here tells nobody of its end: look again and again."""
    wait_until(lambda: is_gone(process_id), "the process to end", seconds=PATIENCE_SECONDS)

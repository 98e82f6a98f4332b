"""An assignor of the clients' world: right most of the time, else legal, wrong, or failing.

Laws: what it gives where it is not wrong is an assignment, however odd.
Source: requirement G9.
"""

from __future__ import annotations

from array import array
from random import Random
from typing import Final

from kohort.assign.interface import Assignable
from kohort.assign.registry import built_in


class Whimsical:
    """The assignor of one member."""

    name = "whimsical"

    def __init__(self, random: Random) -> None:
        self._random: Final = random

    def metadata(self) -> bytes:
        """Return new metadata at each call."""
        return self._random.randbytes(2)

    def assign(self, group: Assignable) -> array[int]:
        """See `kohort.assign.interface.Assignor`."""
        match self._random.choice(("right", "right", "odd", "none", "foreign")):
            case "right":
                uniform = built_in("uniform")
                assert uniform is not None
                return uniform.assign(group)
            case "odd":
                chosen = array("i")
                for count, subscribers in zip(group.space.counts, group.subscribers, strict=True):
                    chosen.extend(self._random.choice(subscribers) for _ in range(count))
                return chosen
            case "none":
                raise ValueError("it cannot cope with that")
        return array("i", (self._random.randint(-1, len(group.members)) for _ in range(len(group.space))))

    def tell(self, group: Assignable, owner: array[int]) -> dict[str, bytes]:
        """Return the number of partitions of each member as its message."""
        return {member.member_id: b"%d" % owner.count(number) for number, member in enumerate(group.members)}

    def on_assignment(self, error: int, version: int, metadata: bytes) -> None:
        """Ignore the assignment."""

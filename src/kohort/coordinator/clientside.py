"""What a coordinator knows of the assignors that the members of one group run themselves.

Laws: only `apply` functions mutate it. What is marked "derived" follows from the rest; `check` recomputes it.
Source: KIP-848 as drafted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kohort.coordinator.assigncommands import ClientAssignment, ClientAssignor

#: Name, lowest and highest version of each assignor of a member, in the order of its preference.
Shape = tuple[tuple[str, int, int], ...]

#: The key under which `ClientSide.said` has what concerns every member.
EVERYBODY: Final = ""
NOTHING_SAID: Final = ClientAssignment(0, 0, b"")


class ClientSide:
    """Of one KIP-848 group."""

    __slots__ = ("assignors", "failed", "failure", "held", "metadata_bytes", "said", "shapes", "untold")

    def __init__(self) -> None:
        #: member id -> its assignors in the order of its preference (record 20,006); never empty.
        self.assignors: Final[dict[str, tuple[ClientAssignor, ...]]] = {}
        #: member id -> what came with the target for it (record 20,007); by `EVERYBODY` the error of the latest
        #: computation.
        self.said: Final[dict[str, ClientAssignment]] = {}
        #: Derived: what members' assignors differ by -> number of members; never 0.
        self.shapes: Final[dict[Shape, int]] = {}
        #: Derived: what the metadata of all members take, bytes.
        self.metadata_bytes = 0
        #: Members that have not been told what is said to them now. After a restart those are all to whom there is.
        self.untold: Final[set[str]] = set()
        #: Members whose heartbeat waits for news, and which hear at once what they are asked. A restart forgets them.
        self.held: Final[set[str]] = set()
        #: Members that could not compute the target that is due. A restart forgets them.
        self.failed: Final[set[str]] = set()
        #: How they did, in words, one after the other; "" where none has since the latest target. A restart forgets it.
        self.failure = ""

    def put(self, member_id: str, assignors: tuple[ClientAssignor, ...]) -> None:
        """The member has these from now on; none forgets it."""
        before = self.assignors.pop(member_id, ())
        if before:
            self.metadata_bytes -= size_of(before)
            shape = shape_of(before)
            self.shapes[shape] -= 1
            if not self.shapes[shape]:
                del self.shapes[shape]
        if assignors:
            self.assignors[member_id] = assignors
            self.metadata_bytes += size_of(assignors)
            shape = shape_of(assignors)
            self.shapes[shape] = self.shapes.get(shape, 0) + 1

    def forget_member(self, member_id: str) -> None:
        """Who is gone is told nothing and not asked; what the log has of it goes by records of its own."""
        self.untold.discard(member_id)
        self.held.discard(member_id)
        self.failed.discard(member_id)

    def forget_failures(self) -> None:
        """There is a target."""
        self.failed.clear()
        self.failure = ""

    def said_to(self, member_id: str) -> ClientAssignment:
        """What a member is told when it asks now."""
        error = self.said.get(EVERYBODY, NOTHING_SAID).error
        return self.said.get(member_id, NOTHING_SAID)._replace(error=error)

    def fault(self) -> str:
        """What is derived and does not follow from the rest; "" if all of it does."""
        shapes = Counter(map(shape_of, self.assignors.values()))
        if dict(shapes) != self.shapes:
            return f"counted assignors of members are {self.shapes}, and should be {dict(shapes)}"
        size = sum(map(size_of, self.assignors.values()))
        return "" if size == self.metadata_bytes else f"their metadata take {self.metadata_bytes} bytes, and are {size}"


def shape_of(assignors: tuple[ClientAssignor, ...]) -> Shape:
    """What of a member's assignors decides which one its group has."""
    return tuple((each.name, each.minimum_version, each.maximum_version) for each in assignors)


def size_of(assignors: tuple[ClientAssignor, ...]) -> int:
    """What a member's metadata take, bytes."""
    return sum(len(each.metadata) for each in assignors)

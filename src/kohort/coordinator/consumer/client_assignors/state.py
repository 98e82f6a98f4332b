"""State of the client-side assignors of one group.

Laws: only `apply` functions mutate it. An attribute marked "derived" follows from the others; `fault` recomputes it.
Source: KIP-848 as drafted.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kohort.coordinator.commands import ClientAssignment, ClientAssignor

#: Name, lowest and highest version of each assignor of a member, in the order of its preference.
Shape = tuple[tuple[str, int, int], ...]

#: The key of `ClientAssignorState.said` for every member.
EVERYBODY: Final = ""
NOTHING_SAID: Final = ClientAssignment(0, 0, b"")


class ClientAssignorState:
    """Client-side assignors of one KIP-848 group, and their messages to members."""

    __slots__ = ("assignors", "failed", "failure", "held", "metadata_bytes", "said", "shapes", "untold")

    def __init__(self) -> None:
        #: member id -> its assignors in the order of its preference (record 20,006); never empty.
        self.assignors: Final[dict[str, tuple[ClientAssignor, ...]]] = {}
        #: member id -> message of the assignor beside its target (record 20,007); at `EVERYBODY` the error of the
        #: latest computation.
        self.said: Final[dict[str, ClientAssignment]] = {}
        #: Derived: names and versions of a member's assignors -> number of members; never 0.
        self.shapes: Final[dict[Shape, int]] = {}
        #: Derived: size of the metadata of all members, bytes.
        self.metadata_bytes = 0
        #: Members with an undelivered message; after a restart all members with a message.
        self.untold: Final[set[str]] = set()
        #: Members with a held heartbeat, which get a request to compute at once. A restart forgets them.
        self.held: Final[set[str]] = set()
        #: Members that failed to compute the target that is due. A restart forgets them.
        self.failed: Final[set[str]] = set()
        #: Their errors in words, one after the other; "" if none failed since the latest target. A restart forgets it.
        self.failure = ""

    def put(self, member_id: str, assignors: tuple[ClientAssignor, ...]) -> None:
        """Set the assignors of a member; none removes them."""
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
        """Remove a former member from the state of deliveries and computations."""
        # Its assignors and messages are removed by records of their own.
        self.untold.discard(member_id)
        self.held.discard(member_id)
        self.failed.discard(member_id)

    def forget_failures(self) -> None:
        """Forget failures, because there is a new target."""
        self.failed.clear()
        self.failure = ""

    def said_to(self, member_id: str) -> ClientAssignment:
        """Return the message to a member, with the error of the latest computation."""
        error = self.said.get(EVERYBODY, NOTHING_SAID).error
        return self.said.get(member_id, NOTHING_SAID)._replace(error=error)

    def fault(self) -> str:
        """Describe a derived value that is inconsistent with the others; "" if none is."""
        shapes = Counter(map(shape_of, self.assignors.values()))
        if dict(shapes) != self.shapes:
            return f"counted assignors of members are {self.shapes}, and should be {dict(shapes)}"
        size = sum(map(size_of, self.assignors.values()))
        return "" if size == self.metadata_bytes else f"their metadata take {self.metadata_bytes} bytes, and are {size}"


def shape_of(assignors: tuple[ClientAssignor, ...]) -> Shape:
    """Return names and versions of a member's assignors, from which the group's assignor is chosen."""
    return tuple((each.name, each.minimum_version, each.maximum_version) for each in assignors)


def size_of(assignors: tuple[ClientAssignor, ...]) -> int:
    """Return the size of a member's metadata, bytes."""
    return sum(len(each.metadata) for each in assignors)

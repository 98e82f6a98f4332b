"""The states of a query in its group, and the only transitions between them.

Laws: a state changes in `Membership._move` alone, which looks it up here; a pair that is not in the table is a bug.
A batch is open from its plan until it is known to be finished; while one is open nothing is given up but by force, and
a query that leaves then leaves as one that comes back.
Source: KIP-848 and KIP-345; the life of Spark's reader process.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class State(Enum):
    """The state of a query in its group."""

    #: The group has given no assignment (any more); no batch is open.
    JOINING = "joining"
    #: The assignment is known; no batch is open.
    OWNING = "owning"
    #: A batch is open.
    PLANNED = "planned"
    #: A batch is open, and the group wants partitions back that it reads.
    GIVING_UP = "giving up"
    #: The group took everything while a batch was open.
    FENCED = "fenced"
    #: An earlier run has left a batch open, and the group has given no assignment yet.
    IN_DOUBT = "in doubt"
    #: The query ends with nothing open: its partitions are free at once.
    LEAVING = "leaving"
    #: The query ends with a batch open: its partitions wait for its return.
    AWAY = "away"
    #: The group has been told, or could not be told.
    LEFT = "left"


class Step(Enum):
    """An event in the life of a query."""

    ASSIGNED = "assigned"
    PLANNED = "planned"
    FINISHED = "finished"
    WANTED_BACK = "wanted back"
    GIVEN_UP = "given up"
    LOST = "lost"
    ENDING = "ending"
    LEFT = "left"


_S = State
#: States with a batch that is not known to be finished.
OPEN: Final = frozenset({_S.PLANNED, _S.GIVING_UP, _S.FENCED, _S.IN_DOUBT, _S.AWAY})
#: States in which the query's partitions are known.
ASSIGNED: Final = frozenset({_S.OWNING, _S.PLANNED, _S.GIVING_UP})
#: The query ends, or has ended.
ENDING: Final = frozenset({_S.LEAVING, _S.AWAY, _S.LEFT})

TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (_S.JOINING, Step.ASSIGNED): _S.OWNING,
    (_S.OWNING, Step.LOST): _S.JOINING,
    # A batch of an earlier run is planned before the group has said a word.
    (_S.JOINING, Step.PLANNED): _S.IN_DOUBT,
    (_S.IN_DOUBT, Step.ASSIGNED): _S.PLANNED,
    (_S.IN_DOUBT, Step.FINISHED): _S.JOINING,
    (_S.OWNING, Step.PLANNED): _S.PLANNED,
    (_S.PLANNED, Step.FINISHED): _S.OWNING,
    # The group wants partitions back: they stay with the batch, unless that takes too long.
    (_S.PLANNED, Step.WANTED_BACK): _S.GIVING_UP,
    (_S.GIVING_UP, Step.FINISHED): _S.OWNING,
    (_S.GIVING_UP, Step.GIVEN_UP): _S.PLANNED,
    # Cut off.
    (_S.PLANNED, Step.LOST): _S.FENCED,
    (_S.GIVING_UP, Step.LOST): _S.FENCED,
    (_S.FENCED, Step.ASSIGNED): _S.PLANNED,
    (_S.FENCED, Step.FINISHED): _S.JOINING,
    # The end.
    (_S.JOINING, Step.ENDING): _S.LEAVING,
    (_S.OWNING, Step.ENDING): _S.LEAVING,
    **{(state, Step.ENDING): _S.AWAY for state in (_S.PLANNED, _S.GIVING_UP, _S.FENCED, _S.IN_DOUBT)},
    (_S.AWAY, Step.FINISHED): _S.LEAVING,
    (_S.LEAVING, Step.LEFT): _S.LEFT,
    (_S.AWAY, Step.LEFT): _S.LEFT,
}

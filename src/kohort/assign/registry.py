"""kohort's own assignors, by their names for members and `group.consumer.assignors`.

Source: requirement G5. Assignors of others come through entry points, see docs/assignors.md.
"""

from __future__ import annotations

from typing import Final

from kohort.assign.external import External
from kohort.assign.interface import Assignor
from kohort.assign.range_assignor import Range
from kohort.assign.round_robin import RoundRobin
from kohort.assign.sticky import Sticky
from kohort.assign.uniform import Uniform

_ASSIGNORS: Final[dict[str, Assignor]] = {
    assignor.name: assignor for assignor in (Uniform(), Range(), RoundRobin(), Sticky(), External())
}

#: Their names, the default first.
BUILT_IN: Final[tuple[str, ...]] = tuple(_ASSIGNORS)
#: Those that even out loads by themselves: where assignors are compared, one that never moves anything says nothing.
BALANCING: Final[tuple[str, ...]] = tuple(name for name in BUILT_IN if name != External.name)


def built_in(name: str) -> Assignor | None:
    """Return the assignor of this name, `None` if kohort has none.

    >>> BUILT_IN
    ('uniform', 'range', 'roundrobin', 'sticky', 'external')
    >>> built_in("range").name, built_in("mine")
    ('range', None)
    """
    return _ASSIGNORS.get(name)

"""The sticky assignor: as even as `uniform`, under the name that clients know from the classic protocol.

Laws: those of `uniform`: balance first, then as few moves as it allows.
Source: KIP-54 (sticky assignor), whose two promises are the ones that `uniform` makes on the server.
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.assign.interface import Assignable
from kohort.assign.uniform import Uniform


class Sticky:
    """Balance, then stickiness."""

    name: Final = "sticky"

    def assign(self, group: Assignable) -> array[int]:
        """The new owners, as `Uniform` computes them."""
        return Uniform().assign(group)

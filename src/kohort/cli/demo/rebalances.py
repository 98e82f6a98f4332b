"""Each rebalance of the demo's group, for a person: what set it off, and how long it took.

Source: `kohort.pipelines.following`, which says what a rebalance is and when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort import Admin
from kohort.client.admin.results import HistoryEvent
from kohort.coordinator.settings import GroupSettings
from kohort.errors import KohortError
from kohort.pipelines.fact import Kind
from kohort.pipelines.following import SILENT, Follower


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """One rebalance: `seconds` from the row that raised the epoch to the one after which the group was at rest.

    `silent_seconds`: how long a member had been silent before that; `None` if nobody was.
    """

    epoch: int
    cause: str
    seconds: float
    silent_seconds: float | None = None

    @property
    def duration(self) -> str:
        """For a person: behind a silence stands what came after it."""
        return f"{self.seconds:.2f} s" if self.silent_seconds is None else f"then {self.seconds:.2f} s"


def read_rebalances(admin: Admin, group: str) -> list[Rebalance]:
    """Those of a group, up to now.

    Raises:
        KohortError: the broker has dropped the beginning of its history.
    """
    history = admin.group_history(group)
    if not history.is_complete:
        raise KohortError(f"the broker has dropped the beginning of the history of {group}")
    configs = {row.name: row.value or "" for row in admin.describe_group_configs(group)}
    return rebalances_of(
        history.events,
        session_timeout_ms=int(configs["consumer.session.timeout.ms"]),
        default_session_timeout_ms=GroupSettings().group_consumer_session_timeout_ms,
    )


def rebalances_of(
    events: Iterable[HistoryEvent], *, session_timeout_ms: int, default_session_timeout_ms: int
) -> list[Rebalance]:
    """The rebalances that came to their end, in order.

    Args:
        events: the history of a KIP-848 group, oldest first, from its beginning.
        session_timeout_ms: after which silence a member of this group is given up.
        default_session_timeout_ms: what that is where nobody sets it.
    """
    silent_s, usual_s = session_timeout_ms / 1000, default_session_timeout_ms / 1000
    usual = "" if silent_s == usual_s else f" ({usual_s:g} by default, here set to {silent_s:g})"
    follower = Follower("", silent=f"silent {silent_s:.1f} s{usual}")
    for event in events:
        follower.read(event)
    return [
        Rebalance(
            epoch=fact.epoch or 0,
            cause=fact.cause or "",
            seconds=((fact.ended_ms or 0) - fact.began_ms) / 1000,
            silent_seconds=silent_s if fact.why == SILENT else None,
        )
        for fact in follower.take()
        if fact.kind == Kind.REBALANCE
    ]

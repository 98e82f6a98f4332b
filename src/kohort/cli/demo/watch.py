"""What the demo sees from outside: the group as the broker describes it, again and again while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kohort import Admin
from kohort.cli.demo.account import Rebalance
from kohort.client.admin.results import GroupDescription
from kohort.errors import KohortError


class GroupWatch:
    """Describes the group ten times a second and notes each rebalance: its cause and how long it took."""

    def __init__(self, bootstrap: str, group: str, *, name_of: Callable[[str], str]) -> None:
        """`name_of`: what a person calls a member id."""
        self._group = group
        self._name_of = name_of
        self._admin = Admin(bootstrap_servers=bootstrap)
        self._stop = threading.Event()
        self._members: frozenset[str] = frozenset()
        self._settled_epoch = 0
        self._began: float | None = None
        self._causes: list[str] = []
        #: Finished rebalances, in order.
        self.rebalances: list[Rebalance] = []
        #: The group as it was last described, `None` before the first member.
        self.group: GroupDescription | None = None
        #: Records that are not committed yet, over all partitions.
        self.lag = 0
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join(10.0)
        self._admin.close()

    def _run(self) -> None:
        ticks = 0
        while not self._stop.wait(0.1):
            try:
                self._look(self._admin.describe_group(self._group))
                if ticks % 5 == 0:
                    self.lag = sum(
                        row.end_offset if row.lag is None else row.lag for row in self._admin.group_offsets(self._group)
                    )
            except KohortError:
                # Before its first member the group does not exist; that is not worth a word.
                continue
            ticks += 1

    def _look(self, group: GroupDescription) -> None:
        self.group = group
        members = frozenset(member.member_id for member in group.members)
        changes = [f"{self._name_of(member)} joined" for member in sorted(members - self._members)]
        changes += [f"{self._name_of(member)} is gone" for member in sorted(self._members - members)]
        self._members = members
        self._causes += changes
        epoch = group.group_epoch or 0
        if epoch > self._settled_epoch and self._began is None:
            self._began = time.monotonic()
        is_settled = group.state in ("Stable", "Empty") and all(row.member_epoch == epoch for row in group.members)
        if self._began is not None and is_settled:
            cause = ", ".join(self._causes) or "subscription or topics changed"
            self.rebalances.append(Rebalance(epoch=epoch, cause=cause, seconds=time.monotonic() - self._began))
            self._settled_epoch, self._began, self._causes = epoch, None, []

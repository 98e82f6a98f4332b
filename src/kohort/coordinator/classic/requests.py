"""Everything that a classic group can be asked, in one place for the shard.

Laws: `decide_*` and `check_*` look at a group and never change it; a refusal is raised as `Refused`.
"""

from __future__ import annotations

from kohort.coordinator.classic.commits import check_commit, commit_effects, former_share
from kohort.coordinator.classic.describe import describe
from kohort.coordinator.classic.expiry import decide_expiry, decide_loaded
from kohort.coordinator.classic.heartbeat import decide_heartbeat
from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.leave import decide_leave
from kohort.coordinator.classic.sync import decide_sync

__all__ = [
    "decide_join",
    "decide_sync",
    "decide_heartbeat",
    "decide_leave",
    "decide_expiry",
    "decide_loaded",
    "describe",
    "check_commit",
    "commit_effects",
    "former_share",
]

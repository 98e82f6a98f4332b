"""A broker is killed again and again under producers, groups and commits: the history of its clients has no anomaly.

8 lives here, 1,000 by `make soak ONLY=kills`.
Source: requirement B3; Jepsen's Kafka workload.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kohort.testing import check_history
from support.depth import at_depth
from support.scenarios.kill_cycles import kill_again_and_again

pytestmark = pytest.mark.interop

CYCLES = at_depth(8, 1_000)


@pytest.mark.timeout(60 + 10 * CYCLES)
def test_nothing_acknowledged_is_lost_over_many_lives(tmp_path: Path) -> None:
    history = kill_again_and_again(tmp_path / "data", cycles=CYCLES, seed=13)
    counts = Counter((event.name, event.kind) for event in history.events)
    assert counts["send", "ok"] > 20 * CYCLES
    assert counts["commit", "ok"] > CYCLES
    assert counts["committed", "ok"] == 2 * (CYCLES + 1)
    assert [str(anomaly) for anomaly in check_history(history.events)] == []

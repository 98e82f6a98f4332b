"""What stock clients do while a leader withholds one of their partitions from them.

`make soak ONLY=refusal-codes` tries every client with every code, for seconds, and prints the table.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

import pytest

from kohort.errors import ErrorCode
from support.depth import IS_SOAK
from support.scenarios.refusal_codes import READERS, Stage, play_for, play_rounds, table

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

#: Records of each partition, before and while one is withheld.
ROUNDS: Final = 10
SECONDS: Final = 6.0
CODES: Final = (
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.FENCED_MEMBER_EPOCH,
)
#: Those that tell an application nothing.
BORNE: Final = (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def clients(*names: str) -> list[object]:
    """Parameters; those of Java need Apache Kafka."""
    return [pytest.param(name, marks=pytest.mark.apache if "Java" in name else ()) for name in names]


@pytest.mark.parametrize("client", clients("kafka-python", "aiokafka", "librdkafka"))
def test_client_notices_nothing_of_a_quiet_refusal(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks as often as before, reads the other partition as before, and all of this one when it opens."""
    with ExitStack() as stack:
        lived = play_rounds(Stage(client, stack, monkeypatch), "quiet", ROUNDS)
    assert lived.errors == []
    assert lived.withheld.fetch <= lived.before.fetch + ROUNDS
    assert lived.withheld.metadata <= 1


@pytest.mark.parametrize("client", clients("kafka-python", "aiokafka", "librdkafka"))
def test_client_bears_a_strict_refusal(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It raises nothing, reads the other partition on, and all of this one when it opens."""
    with ExitStack() as stack:
        assert play_rounds(Stage(client, stack, monkeypatch), "strict", ROUNDS).errors == []


@pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=refusal-codes")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", clients(*READERS))
def test_codes(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table in docs/explanation/ownership.md."""
    rows = []
    for code in CODES:
        with ExitStack() as stack, monkeypatch.context() as patched:
            row = play_for(Stage(client, stack, patched), SECONDS, code=code, monkeypatch=patched)
        rows.append((client, code, row))
    print("", table(rows), sep="\n")
    for _, code, row in rows:
        if code in BORNE:
            assert row.errors == [], code
            assert row.back_s is not None, code

"""Static groups of unmodified clients, each member a process: S1-S4, KIP-345 as drafted.

All kinds of members with STATIC_GROUPS=whole (`make static-groups`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort import Admin, Broker
from support.static_groups import CONFIG, KINDS, LONG_MS, PARTITIONS, TOPIC, StaticGroup

pytestmark = pytest.mark.interop

#: What `make test` runs: each protocol by librdkafka, and the two that speak classic only.
DAILY = ("librdkafka, consumer", "librdkafka, classic", "kafka-python", "aiokafka")


def kinds(*daily: str) -> list[object]:
    """Those of `make test`, or all."""
    wanted = KINDS if os.environ.get("STATIC_GROUPS") == "whole" else daily or DAILY
    return [pytest.param(kind, marks=pytest.mark.apache if "Java" in kind else ()) for kind in wanted]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
        yield admin


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def be_static(admin: Admin, *, registration_ms: int = LONG_MS, expansion_ms: int = LONG_MS) -> None:
    """The group "g", whether it is there or not."""
    admin.alter_group_configs(
        "g",
        {
            "group.membership": "static",
            "group.registration.timeout.ms": registration_ms,
            "group.expansion.timeout.ms": expansion_ms,
        },
    )


def refusals_told() -> dict[str, str]:
    """Kind of member -> what it says without a name, as docs/groups.md has it."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "groups.md").read_text()
    return dict(re.findall(r"^\| ([\w-]+(?:, \w+)?) \| `([^`]+)` \|$", text, re.MULTILINE))


def test_the_table_of_refusals_is_whole() -> None:
    assert refusals_told().keys() == KINDS.keys()


@pytest.mark.parametrize("kind", kinds(*refusals_told()))
def test_a_member_without_a_name_ends_with_its_first_requests(
    kind: str, broker: Broker, admin: Admin, stack: ExitStack
) -> None:
    """S2: with the first of at most three, and in the words of the document."""
    group = StaticGroup(broker, admin, stack, kind)
    be_static(admin)
    group.start(None)
    said = group.wait_for_error("nobody")
    assert refusals_told()[kind] in said
    assert 1 <= group.refusals() <= 3

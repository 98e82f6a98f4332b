"""docs/groups.md says what the code says: states, error codes, options, configs, links."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import CONSUMER_OPTIONS
from kohort.coordinator.classic.validation import (
    ASSIGNMENTS_LIMIT_BYTES,
    GROUP_METADATA_LIMIT_BYTES,
    MEMBER_METADATA_LIMIT_BYTES,
)
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.coordinator.consumer.regex import MAX_REGEX
from kohort.coordinator.consumer.validation import MAX_NAME, MAX_OWNED_PARTITIONS, MAX_SUBSCRIBED_TOPICS
from kohort.coordinator.settings import MIGRATION_POLICIES
from kohort.errors import ErrorCode
from support.doc_links import is_there, links_of

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "groups.md"
TEXT = DOCUMENT.read_text()
#: What a client is set to that ours does not have (yet), and what a server assignor's clients are.
OF_OTHER_CLIENTS = {"group.instance.id", "metadata.recovery.strategy", "transactional.id"}


def test_tables_of_states_are_those_of_the_code() -> None:
    """A step was added or worded anew: put it into the document with the change."""
    made = runpy.run_path(str(ROOT / "tools" / "state_tables.py"))["render"](TEXT)
    assert made == TEXT, "run: python tools/state_tables.py"


def test_every_code_that_the_coordinator_gives_is_explained_and_no_other() -> None:
    sources = (ROOT / "src" / "kohort" / "coordinator").rglob("*.py")
    given = {code for path in sources for code in re.findall(r"ErrorCode\.([A-Z_]+)", path.read_text())}
    explained = re.findall(r"^\| `([A-Z_]+)` \|", TEXT, re.MULTILINE)
    assert sorted(explained) == sorted(given - {ErrorCode.NONE.name})


def test_events_of_the_history_are_those_that_are_told() -> None:
    (heading,) = [line for line in TEXT.splitlines() if line.startswith("| event |")]
    rows = TEXT.partition(heading)[2].split("\n\n", 1)[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    kohort = ROOT / "src" / "kohort"
    tellers = [
        *(kohort / "coordinator" / "journal_events").glob("*.py"),
        kohort / "broker" / "groups" / "journallog.py",
    ]
    told = "".join(path.read_text() for path in tellers)
    assert named
    assert [name for name in named if f'"{name}"' not in told] == []


def test_every_option_that_is_named_exists() -> None:
    """Dotted names in code font are options of the broker or the consumer, or configs of groups."""
    known = {
        name for options in (BROKER_OPTIONS, CONSUMER_OPTIONS) for each in options for name in (each.name, *each.also)
    }
    named = set(re.findall(r"`((?:[a-z]+\.)+[a-z]+)(?:=[^`]*)?`", TEXT)) - {"server.properties"}
    assert named
    assert named <= known | GROUP_CONFIGS.keys() | OF_OTHER_CLIENTS


@pytest.mark.parametrize(
    "limit",
    [
        f"{MAX_SUBSCRIBED_TOPICS:,} topics",
        f"{MAX_OWNED_PARTITIONS:,} partitions",
        f"{MAX_NAME:,} characters",
        f"{MAX_REGEX:,} bytes",
        f"{MEMBER_METADATA_LIMIT_BYTES >> 20} MiB (classic)",
        f"{GROUP_METADATA_LIMIT_BYTES >> 20} MiB in all",
        f"{ASSIGNMENTS_LIMIT_BYTES >> 20} MiB",
    ],
)
def test_limits_are_those_of_the_code(limit: str) -> None:
    assert limit in TEXT


def test_the_table_of_policies_is_whole() -> None:
    (heading,) = [line for line in TEXT.splitlines() if line.startswith("| policy |")]
    rows = TEXT.partition(heading)[2].split("\n\n", 1)[0]
    assert sorted(re.findall(r"^\| `(\w+)`", rows, re.MULTILINE)) == sorted(MIGRATION_POLICIES)


@pytest.mark.parametrize("target", links_of(DOCUMENT))
def test_links_lead_somewhere(target: str) -> None:
    assert is_there(DOCUMENT, target)

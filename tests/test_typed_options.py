"""Options as keyword arguments with types: made from the tables, and seen by whoever checks types."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.client import typed_options
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.config import OptionSet, as_keyword

ROOT = Path(__file__).resolve().parents[1]

#: Each line that is wrong ends with a word of what mypy says of it; all others are right.
SNIPPET = """
import kohort
import kohort.aio

kohort.Consumer(bootstrap_servers="h:1", group_id="billing", auto_offset_reset="earliest", enable_auto_commit=False)
kohort.Consumer("orders", bootstrap_servers=["h:1", "h:2"], fetch_min_bytes=1, group_id=None)
kohort.Consumer({"bootstrap.servers": "h:1"}, max_poll_records=10)
kohort.Consumer.from_config({"bootstrap.servers": "h:1"})
kohort.Producer(bootstrap_servers="h:1", acks=1, linger_ms=5, partitioner=lambda topic, key, count: 0)
kohort.Producer({"linger.ms": 5}, acks="all", value_serializer=str.encode)
kohort.Admin(bootstrap_servers="h:1", client_id="me")
kohort.aio.Consumer("orders", group_id="billing")
kohort.aio.Producer(linger_ms=5)
kohort.aio.Admin(bootstrap_servers="h:1", client_id="me")
kohort.Consumer(grup_id="billing")  # grup_id
kohort.Consumer(auto_offset_reset="earlest")  # auto_offset_reset
kohort.Consumer(max_poll_records="many")  # max_poll_records
kohort.Consumer(linger_ms=5)  # linger_ms
kohort.Producer(group_id="billing")  # group_id
kohort.Producer(compression_type="zip")  # compression_type
kohort.Admin(acks="all")  # acks
kohort.aio.Consumer(enable_auto_commit="no")  # enable_auto_commit
kohort.aio.Admin(acks="all")  # acks


async def describe(admin: kohort.aio.Admin) -> str:
    (await admin.describe_group("billing")).members[0].assignments  # assignments
    return (await admin.describe_group("billing")).state
"""


def test_types_are_those_of_the_tables() -> None:
    """An option was changed: make the module anew and commit it with the change."""
    made = runpy.run_path(str(ROOT / "tools" / "typed_options.py"))["document"]()
    there = (ROOT / "src" / "kohort" / "client" / "typed_options.py").read_text()
    assert made == there, "run: python tools/typed_options.py > src/kohort/client/typed_options.py"


def test_types_of_spark_are_those_of_its_tables() -> None:
    """The same for its source and sink."""
    made = runpy.run_path(str(ROOT / "tools" / "typed_options.py"))["spark_document"]()
    there = (ROOT / "src" / "kohort" / "spark" / "typed_options.py").read_text()
    assert made == there, "run: python tools/typed_options.py spark > src/kohort/spark/typed_options.py"


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        (CONSUMER_OPTIONS, typed_options.ConsumerOptions),
        (PRODUCER_OPTIONS, typed_options.ProducerOptions),
        (ADMIN_OPTIONS, typed_options.AdminOptions),
    ],
    ids=lambda value: getattr(value, "what", ""),
)
def test_every_option_is_there_and_none_is_needed(options: OptionSet, typed: type) -> None:
    names = {as_keyword(name) for option in options for name in (option.name, *option.also)}
    assert typed.__optional_keys__ == names  # type: ignore[attr-defined]
    assert not typed.__required_keys__  # type: ignore[attr-defined]


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    """A name, a word, a number, and an option of another client."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--config-file=", str(snippet)],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(re.findall(r"snippet\.py:(\d+): error: (.*)", done.stdout))
    wrong = {
        str(number): line.rpartition("# ")[2] for number, line in enumerate(SNIPPET.splitlines(), 1) if "  # " in line
    }
    assert found.keys() == wrong.keys(), done.stdout + done.stderr
    for number, word in wrong.items():
        assert f'"{word}"' in found[number]

"""Options as keyword arguments with types: the tables themselves, as type checkers see them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, ForwardRef, Literal, get_args, get_origin

import pytest

from kohort.base.options import (
    Option,
    OptionSet,
    as_keyword,
    parse_bool,
    parse_function,
    parse_int,
    parse_list,
    parse_str,
)
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.client.typed_options import AdminOptions, ConsumerOptions, ProducerOptions
from kohort.spark.option_table import OPTIONS, SINK_OPTIONS, OwnReadOptions, SinkTable

ROOT = Path(__file__).resolve().parents[1]

#: Text in the tables, and objects as keyword arguments.
SPARKS_OBJECTS = {
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
}

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
kohort.Consumer(fetch_max_wait_ms="x")  # fetch_max_wait_ms
kohort.Consumer(ssl_cafile=5)  # ssl_cafile


async def describe(admin: kohort.aio.Admin) -> str:
    (await admin.describe_group("billing")).members[0].assignments  # assignments
    return (await admin.describe_group("billing")).state
"""


#: What a value may be given as, by its parser; a `Literal` where there are choices.
TYPES = {
    parse_bool: bool,
    parse_int: int,
    parse_str: str,
    parse_list: str | Sequence[str],
    parse_function: Callable[[Any], Any],
}


@pytest.mark.parametrize("table", [ConsumerOptions, ProducerOptions, OwnReadOptions, SinkTable])
def test_type_of_a_field_is_that_of_its_option(table: type) -> None:
    """Numbers and switches as such, not as text; nothing may be given where nothing is the default."""
    for field, annotation in table.__annotations__.items():
        option, kind = annotation.__metadata__[0], annotation.__origin__
        if not isinstance(option, Option) or isinstance(kind, ForwardRef):
            continue
        assert (NoneType in get_args(kind)) == (option.default is None), field
        words = {word for part in (kind, *get_args(kind)) if get_origin(part) is Literal for word in get_args(part)}
        if words:
            assert option.default is None or option.default in words, field
        elif option.parse in TYPES and field not in SPARKS_OBJECTS:
            expected = TYPES[option.parse]
            assert kind == (expected | None if option.default is None else expected), field


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        (CONSUMER_OPTIONS, ConsumerOptions),
        (PRODUCER_OPTIONS, ProducerOptions),
        (ADMIN_OPTIONS, AdminOptions),
        (OPTIONS, OwnReadOptions),
        (SINK_OPTIONS, SinkTable),
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
    # Settings and folder of tools/checks.sh: with others, nothing of its cache would hold.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", str(snippet)],
        cwd=ROOT,
        env={},
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

"""`kohort tail`: where reading starts, which partitions, and how a record is shown."""

from __future__ import annotations

import base64
from argparse import ArgumentTypeError, Namespace
from datetime import UTC, datetime

import pytest

import kohort
from kohort import ConsumerRecord
from kohort.cli.main import build_parser, main
from kohort.cli.output import plain
from kohort.cli.recordformat import choose_format, compile_format, json_of, unescape
from kohort.cli.verbs.tail import first_offset, parse_partitions, parse_start

RECORD = ConsumerRecord("orders", 3, 42, 1_700_000_000_000, 0, b"k", b"v1", (("a", b"1"), ("b", None)), 0)


def options(words: str) -> Namespace:
    return build_parser(["tail"]).parse_args(["tail", "orders", *words.split()])


@pytest.mark.parametrize(
    ("word", "offset"),
    [
        ("beginning", 10),
        ("earliest", 10),
        ("start", 10),
        ("oldest", 10),
        ("end", 20),
        ("latest", 20),
        ("newest", 20),
        ("15", 15),
        ("5", 10),
        ("99", 20),
        ("-3", 17),
        ("-99", 10),
        ("-0", 20),
        ("0", 10),
    ],
)
def test_reading_starts_within_what_is_there(word: str, offset: int) -> None:
    start = parse_start(word)
    assert isinstance(start, str)
    assert first_offset(start, begin=10, end=20) == offset


def test_a_span_longer_than_the_calendar_starts_in_1970() -> None:
    assert parse_start("999999999d") == datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize(
    ("word", "hint"), [("begining", "did you mean beginning"), ("yesterday", "OFFSET, -N, 2h and 2026-01-31T12:00Z$")]
)
def test_a_start_that_is_none_is_refused(word: str, hint: str) -> None:
    with pytest.raises(ArgumentTypeError, match=hint):
        parse_start(word)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("--from -5", "-5"),
        ("-o -5", "-5"),
        ("--offset 7", "7"),
        ("--from earliest", "beginning"),
        ("--from-beginning", "beginning"),
        ("", None),
    ],
)
def test_a_start_has_the_names_of_other_tools(words: str, start: str | None) -> None:
    assert options(words).start == start


@pytest.mark.parametrize("words", ["-n 3", "-c 3", "--count 3", "--num 3", "-n3"])
def test_a_count_has_the_names_of_other_tools(words: str) -> None:
    assert options(words).count == 3


@pytest.mark.parametrize(
    ("word", "ranges"),
    [
        ("0", [range(1)]),
        ("0,2", [range(1), range(2, 3)]),
        ("7,1-2", [range(7, 8), range(1, 3)]),
        ("0-99999999999", [range(100000000000)]),
    ],
)
def test_partitions_are_numbers_and_ranges(word: str, ranges: list[range]) -> None:
    assert parse_partitions(word) == ranges


@pytest.mark.parametrize("word", ["", "x", "1,", "-1", "1-", "3-1"])
def test_a_partition_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is no partition"):
        parse_partitions(word)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "v1\n"),
        ("--keys", "k\tv1\n"),
        ("-K :", "k:v1\n"),
        ("-K \\t", "k\tv1\n"),
        ("--key-only", "k\n"),
        ("--headers", "a=1,b\tv1\n"),
        ("--headers --keys", "a=1,b\tk\tv1\n"),
        ("-f %t/%p@%o", "orders/3@42"),
        ("-f %T|%k|%K|%s|%S|%h|%%\\n", "1700000000000|k|1|v1|2|a=1,b|%\n"),
        ("-f \\x41\\\\n\\q", "A\\n\\q"),
    ],
)
def test_a_record_is_shown_as_asked(words: str, line: str) -> None:
    assert choose_format(options(words))(RECORD) == line


@pytest.mark.parametrize(("words", "line"), [("--keys", "\tnull\n"), ("-f %k,%K,%s,%S,%h", ",-1,null,-1,")])
def test_nothing_is_shown_as_such(words: str, line: str) -> None:
    assert choose_format(options(words))(RECORD._replace(key=None, value=None, headers=())) == line


@pytest.mark.parametrize("text", ["%q", "%", "a%"])
def test_a_token_that_is_none_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"unknown token %.* known are %t topic, .*%s value"):
        compile_format(text)


def test_shapes_of_a_record_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--json -f %s")
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "meant"), [(r"\t", "\t"), (r"\x3a\x3A", "::"), (r"\\t", r"\t"), (r"\d", r"\d")])
def test_escapes_are_understood(text: str, meant: str) -> None:
    assert unescape(text) == meant


def test_json_marks_what_is_not_text() -> None:
    """`null` stays null, text stays text, and anything else cannot be mistaken for it."""
    shown = plain(json_of(RECORD._replace(key=None, value=b"a\xff", headers=(("h", b"\xfe"), ("h", None)))))
    assert shown["key"] is None
    assert shown["value"] == {"base64": base64.b64encode(b"a\xff").decode()}
    assert shown["headers"] == [["h", {"base64": "/g=="}], ["h", None]]


def test_reading_starts_at_a_time_or_so_long_ago(capsys: pytest.CaptureFixture[str]) -> None:
    """As `topic offsets --at`: the first record that is as young; a partition without one is read from its end."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    with kohort.Broker() as broker, kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("timed", 2)
        for hours, partition in ((9, 1), (5, 0), (3, 0), (1, 0)):
            sent = producer.send("timed", b"%d" % hours, partition=partition, timestamp_ms=now_ms - hours * 3_600_000)
            sent.result(20)
        shown = []
        for word in ("4h", datetime.fromtimestamp(now_ms / 1000 - 7_200, UTC).isoformat(), "1m"):
            assert main(["tail", "timed", "--exit", "--from", word, "-b", broker.bootstrap_servers]) == 0
            shown.append(capsys.readouterr().out.split())
    assert shown == [["3", "1"], ["1"], []]

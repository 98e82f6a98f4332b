"""How the command line speaks: JSON of our values, text of bytes, tables that can be piped."""

from __future__ import annotations

import base64
import io
import json
import re
import sys

import pytest

from kohort.cli.output import complain, one_line, plain, print_json, print_table, say, text
from kohort.client.admin.results.groups import MemberDescription
from kohort.ids import TopicPartition


def test_values_become_what_json_can_carry() -> None:
    member = MemberDescription(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        member_epoch=3,
        assignment=(TopicPartition("a", 0),),
        target=(),
    )
    shown = plain({"member": member, 1: {2.5}, "raw": b"ok", "view": memoryview(b"v")})
    assert json.loads(json.dumps(shown)) == shown
    assert shown["1"] == [2.5]
    assert (shown["raw"], shown["view"]) == ("ok", "v")
    assert shown["member"]["member_epoch"] == 3
    assert shown["member"]["target"] == []


def test_partitions_are_objects_with_names() -> None:
    """A reader of JSON should not have to know the order of a tuple."""
    assert plain([TopicPartition("a", 0)]) == [{"topic": "a", "partition": 0}]


@pytest.mark.parametrize(
    ("raw", "shown"), [(None, None), (b"", ""), ("ä".encode(), "ä"), (b"\xff\x00", "\\xff\x00"), (b"a\nb", "a\nb")]
)
def test_bytes_are_text_where_they_can_be(raw: bytes | None, shown: str | None) -> None:
    assert text(raw) == shown


@pytest.mark.parametrize("raw", [b"a\xff", b"\xff", b"\x80abc"])
def test_bytes_that_are_no_text_are_base64_in_json_and_marked(raw: bytes) -> None:
    """A text could be mistaken for itself: `a\\xff` with a real backslash is one, too."""
    shown = plain({"value": raw})["value"]
    assert shown.keys() == {"base64"}
    assert base64.b64decode(shown["base64"]) == raw
    assert plain(raw.decode("utf-8", "backslashreplace").encode()) != shown


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"value": "a\nb ä"})
    assert capsys.readouterr().out == '{"value": "a\\nb ä"}\n'


def test_a_table_that_is_piped_keeps_one_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    print_table(("NAME", "LAG"), [(long, None), ("[bold]", 0)], empty="nothing")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [["NAME", "LAG"], [long, "-"], ["[bold]", "0"]]


class Terminal(io.StringIO):
    """Where a person reads."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "shown"), [(40, "a list"), (160, "a table")])
def test_a_table_that_would_have_a_letter_a_line_is_a_list(
    columns: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    names = ("MEMBER", "CLIENT", "HOST", "EPOCH", "PARTITIONS")
    row = ("0123456789-abcdef", "billing-worker", "/127.0.0.1", 6, "orders:0-2")
    print_table(names, [row, row], empty="none")
    shown_text = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())  # type: ignore[attr-defined]
    lines = shown_text.splitlines()
    as_list = [f"{name:<10}  {cell}" for name, cell in zip(names, row, strict=True)]
    if shown == "a list":
        assert lines == [*as_list, "", *as_list]
    else:
        assert [line.split() for line in lines] == [list(names), [*map(str, row)], [*map(str, row)]]


def test_a_table_without_rows_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME",), [], empty="nothing yet")
    assert capsys.readouterr().out == "nothing yet\n"


def test_a_complaint_is_one_line_on_the_error_output(capsys: pytest.CaptureFixture[str]) -> None:
    complain(ValueError("no such thing"))
    assert capsys.readouterr() == ("", "kohort: no such thing\n")


EVIL = "g\nfake  Stable\x1b[2J\x9b1A\u202e\x07"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_names_that_clients_choose_write_nothing_but_their_cell(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group whose name has a line of its own, or moves the cursor of an administrator's terminal."""
    monkeypatch.setattr(sys, "stdout", Terminal() if is_terminal else io.StringIO())
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "dumb")
    print_table(("GROUP", "STATE"), [(EVIL, "Empty")], empty="none")
    say(f"{EVIL} is there", EVIL)
    lines = sys.stdout.getvalue().splitlines()  # type: ignore[attr-defined]
    shown = r"g\nfake  Stable\x1b[2J\x9b1A\u202e\x07"
    assert [line.rstrip() for line in lines[1:]] == [f"{shown}  Empty", f"{shown} is there", shown]


def test_a_complaint_about_such_a_name_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    complain("two mistakes:\none \x1b[31m")
    assert capsys.readouterr().err == "kohort: two mistakes:\none \\x1b[31m\n"


def test_printable_text_of_any_script_stays_as_it_is() -> None:
    for each in ("ä ß", "日　本", "a\u00a0b", "", "👍"):
        assert one_line(each) == each


def test_json_of_such_a_name_is_the_name_and_printable(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([EVIL, "日　本"])
    out = capsys.readouterr().out
    assert json.loads(out) == [EVIL, "日　本"]
    assert "日　本" in out
    assert not {"\x1b", "\x9b", "\u202e"} & set(out)

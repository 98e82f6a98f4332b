"""Schedules of moves: what a file has to look like, and what is said where it does not."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from kohort.cli.verbs.schedules import read_schedule
from kohort.client.admin.results.moves import MOST_MOVES
from kohort.errors import ConfigError

ROWS = {("orders", 3): "worker-1", ("orders", 11): "worker-2"}
AS_JSON = [{"topic": topic, "partition": number, "to": to} for (topic, number), to in ROWS.items()]


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "moves"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        "topic,partition,to\norders,3,worker-1\norders,11,worker-2\n",
        "\ufeffwhy,to,partition,topic\r\nslow,worker-1, 3 ,orders\r\n,worker-2,11, orders\r\n",
        'topic,partition,to\n"orders",3,"worker-1"\norders,11,worker-2',
        json.dumps(AS_JSON),
        "\n " + json.dumps([{**row, "lag": 7, "partition": str(row["partition"])} for row in AS_JSON], indent=1),
    ],
    ids=["csv", "spreadsheet", "quoted", "json", "json with more"],
)
def test_a_schedule_is_read(tmp_path: Path, text: str) -> None:
    assert read_schedule(written(tmp_path, text)) == ROWS


def test_a_schedule_comes_from_the_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(AS_JSON).encode())))
    assert read_schedule("-") == ROWS


@pytest.mark.parametrize(
    ("text", "saying"),
    [
        ("", "moves has no moves; each has topic, partition, to"),
        ("topic,partition,to\n", "has no moves"),
        ("[]", "has no moves"),
        ("topic;partition;to\norders;3;a\n", "has no column topic: its first line has to be topic,partition,to"),
        ("topic,partition\norders,3\n", "has no column to"),
        ("orders,3,a\n", "has no column topic"),
        ("topic,partition,to\norders,3\n", "line 2: to is missing; a name is expected"),
        ("topic,partition,to\norders,3, \n", "line 2: to is ' '; a name is expected"),
        ("topic,partition,to\norders,x,a\n", "line 2: partition is 'x'; a number from 0 is expected"),
        ("topic,partition,to\norders,-1,a\n", "line 2: partition is '-1'"),
        ("topic,partition,to\norders,99999999999,a\n", "line 2: partition is '99999999999'"),
        ("topic,partition,to\norders,1,a\norders,1,b\n", "line 3: orders-1 is named twice; name it once"),
        ('topic,partition,to\n"orders,1,a\n', "unexpected end of data"),
        ('topic,partition,to\norders,1,"a"b\n', "is no CSV behind line 1: ',' expected after"),
        (b"\xff\xfet\x00", "is no text in UTF-8: byte 0 is 0xff"),
        ('{"topic": "orders"}', "is a JSON object; an array of objects with topic, partition, to is expected"),
        ("[1]", "entry 1: 1 is no object"),
        ("[{}]", "entry 1: topic is missing"),
        ('[{"topic": "t", "partition": true, "to": "a"}]', "entry 1: partition is True"),
        ('[{"topic": "t", "partition": 1.5, "to": "a"}]', "entry 1: partition is 1.5"),
        ('[{"topic": 7, "partition": 1, "to": "a"}]', "entry 1: topic is 7"),
        ('[{"topic": "t"', "is no JSON: "),
        ("[" * 100_000, "is no JSON: "),
        ("topic,partition,to\n" + "x" * 8_388_608, "is longer than 8388608 bytes, more than 10000 moves need"),
        (
            "topic,partition,to\n" + "".join(f"t,{number},a\n" for number in range(MOST_MOVES + 1)),
            "has more than 10000 moves",
        ),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_place(tmp_path: Path, text: str | bytes, saying: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_schedule(written(tmp_path, text))
    assert saying in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400

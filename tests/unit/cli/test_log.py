"""`kohort log` on directories of all kinds: what it says, and what it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kohort.cli.main import main
from kohort.coordinator.records.codec import encode
from kohort.coordinator.records.types import OffsetCommitted
from kohort.ids import OFFSETS_TOPIC, ZERO_TOPIC_ID
from kohort.records.batch import build_batch
from kohort.storage.store import Store
from support.builders.storage_logs import TOPIC_ID, batch

NAME = "00000000000000000000.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic `orders` with a file of three batches, and a commit of group `g`."""
    directory = tmp_path / "data"
    store = Store.open(str(directory))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    log.append(batch(2, value=b"one"), now_ms=1)
    log.append(build_batch([(b"k", b"two", 5_000, [("h", b"1")])], compression="lz4"), now_ms=1)
    log.append(batch(value=b"three"), now_ms=1)
    groups = store.create_topic(OFFSETS_TOPIC, 1, topic_id=TOPIC_ID, configs={"cleanup.policy": "compact"})
    commit = OffsetCommitted(
        group_id="g",
        topic="orders",
        partition=0,
        offset=3,
        leader_epoch=0,
        metadata="",
        commit_timestamp_ms=5,
        topic_id=ZERO_TOPIC_ID,
    )
    key, value = encode(commit)
    groups.partitions[0].append(build_batch([(key, value, 5, ()), (key, None, 6, ())]), now_ms=1, validate=False)
    store.close()
    return directory


def damage(data: Path) -> None:
    """One bit of the second batch of `orders`."""
    path = data / "orders-0" / NAME
    raw = bytearray(path.read_bytes())
    raw[len(batch(2, value=b"one")) + 30] ^= 1
    path.write_bytes(raw)


def run(*words: object) -> int:
    return main(["log", *map(str, words)])


def test_sound_directory_is_one_table(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", data) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["TOPIC", "PARTITION", "FILES", "BYTES", "BATCHES", "RECORDS", "BEGIN", "END", "DAMAGED"]
    size = str((data / "orders-0" / NAME).stat().st_size)
    assert rows[1] == ["orders", "0", "1", size, "3", "4", "0", "4", "no"]
    assert err == ""


def test_damage_is_named_and_is_the_exit_code(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data)
    assert run("check", data) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[-1] == "yes"
    path = data / "orders-0" / NAME
    assert err.startswith(f"kohort: {path}: ")
    assert "offset 2; offset 3 follows: " in err

    assert run("check", data, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["is_damaged"]
    assert [each["topic"] for each in document["partitions"] if each["damages"]] == ["orders"]


def test_directory_of_a_broker_that_runs_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store.open(str(data))
    for words in (("check", data), ("dump", data / "orders-0")):
        assert run(*words) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert "broker (process" in err
        assert len(err.splitlines()) == 1
    store.close()


def test_other_directories_are_refused_untouched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "meta.properties").write_text("version=1\nnode.id=1\n")
    for words in (("check", tmp_path / "none"), ("check", tmp_path), ("check", foreign), ("dump", tmp_path)):
        assert run(*words) == 1
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]
    assert [path.read_text() for path in foreign.glob("*.properties")] == ["version=1\nnode.id=1\n"]


def test_dump_shows_batches_and_records(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("dump", data / "orders-0" / NAME, "--records") == 0
    lines = capsys.readouterr().out.splitlines()
    size = len(batch(2, value=b"one"))
    assert lines[0] == f"offsets 0-1, byte 0, {size} bytes, 2 records, none, epoch 0, 1970-01-01T00:00:01.001Z"
    assert lines[1] == "  0  1970-01-01T00:00:01.000Z  key=None  value=one"
    assert lines[3].startswith(f"offsets 2-2, byte {size}, ")
    assert ", lz4, " in lines[3]
    assert lines[4] == "  2  1970-01-01T00:00:05.000Z  key=k  value=two  h=1"


def test_dump_goes_on_behind_damage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data)
    assert run("dump", data / "orders-0") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[::2]] == ["offsets 0-1", "offsets 3-3"]
    assert lines[1].startswith("DAMAGED ")
    assert run("dump", data / "orders-0", "--json", "--from", 3) == 1
    damaged, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert damaged["damage"]["offset"] == 2
    assert (last["base_offset"], last["last_offset"], last["record_count"]) == (3, 3, 1)


def test_dump_says_what_the_coordinator_means(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = data / f"{OFFSETS_TOPIC}-0"
    assert run("dump", folder, "--records") == 0
    _, commit, gone = capsys.readouterr().out.splitlines()
    assert commit.startswith("  0  OffsetCommitted  group_id=g  topic=orders  partition=0  offset=3  ")
    assert gone.startswith("  1  OffsetForgotten  group_id=g  topic=orders  partition=0")
    assert run("dump", folder, "--records", "--json") == 0
    (document,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert document["records"][0]["type"] == "OffsetCommitted"
    assert run("dump", folder, "--records", "--raw") == 0
    assert "key=" in capsys.readouterr().out


def test_repair_shows_what_it_would_do_and_does_it_when_asked(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data)
    before = (data / "orders-0" / NAME).read_bytes()
    assert run("repair", data) == 0
    out, err = capsys.readouterr()
    assert "keep the damaged bytes aside; readers stop at the hole" in out
    assert err == "kohort: nothing is changed yet: --execute does it\n"
    assert (data / "orders-0" / NAME).read_bytes() == before

    assert run("repair", data, "--drop", "--execute", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["executed"]
    assert [step["damage"]["offset"] for step in document["steps"]] == [2]
    assert run("check", data) == 0
    assert run("repair", data) == 0
    assert capsys.readouterr().out.endswith("nothing is damaged\n")


def test_repair_makes_a_missing_catalogue(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*.log")}
    (data / "kohort.catalog").unlink()
    assert run("check", data) == 1
    assert f"kohort log repair {data}" in capsys.readouterr().err
    assert run("repair", data) == 0
    told = capsys.readouterr()
    assert ["orders", "1"] in [line.split()[:2] for line in told.out.splitlines()]
    assert "retention.ms=-1" in told.out
    assert "Configs of topics and of the broker are lost" in told.err
    assert not (data / "kohort.catalog").exists()
    assert run("repair", data, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["executed"], len(document["catalog"])) == (False, 2)
    assert run("repair", data, "--execute", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["executed"], [row["topic"] for row in document["catalog"]]) == (True, [OFFSETS_TOPIC, "orders"])
    assert run("check", data) == 0
    assert {path: path.read_bytes() for path in data.rglob("*.log")} == before


def test_repair_leaves_everything_where_a_backup_is_needed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data)
    (data / f"{OFFSETS_TOPIC}-0").rename(data.parent / "away")
    assert run("repair", data, "--execute") == 1
    out, err = capsys.readouterr()
    assert "restore it from a backup" in out
    assert err.splitlines()[-1] == "kohort: nothing is changed: a backup is needed first"
    assert not list(data.glob("orders-0/*.quarantine"))

"""`kohort token`: tokens are made, narrowed and read without a broker, and no command line has one."""

from __future__ import annotations

import io
import json
import stat
import sys
from pathlib import Path

import pytest

from kohort.capabilities import read_keys, verify
from kohort.cli.main import main


@pytest.fixture
def keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A file of root keys."""
    path = str(tmp_path / "capability.keys")
    assert main(["token", "rotate", "--keys", path, "--execute"]) == 0
    capsys.readouterr()
    return path


def typed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a text into the standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_token_is_minted_narrowed_and_inspected(
    keys: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command reads what the one before has printed."""
    assert main(["token", "mint", "--keys", keys, "--operation", "read", "--topic", "orders", "--lease", "7d"]) == 0
    minted = capsys.readouterr().out
    typed(minted, monkeypatch)
    assert main(["token", "attenuate", "--partitions", "orders:0-9,12", "--peer", "10.0.0.0/8", "--label", "a"]) == 0
    narrow = capsys.readouterr().out
    typed(narrow, monkeypatch)
    assert main(["token", "inspect", "--keys", keys, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verified"]
    assert shown["chain"][: len(verify(minted.strip(), read_keys(keys)).chain)] == list(
        verify(minted.strip(), read_keys(keys)).chain
    )
    assert [(row["caveat"], row["value"]) for row in shown["caveats"] if row["caveat"] != "not_after"] == [
        ("operations", "read"),
        ("topics", "orders"),
        ("partitions", "orders 0-9, 12"),
        ("peers", "10.0.0.0/8"),
        ("label", "a"),
    ]
    typed(narrow, monkeypatch)
    assert main(["token", "inspect"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[1].split()[:4] == ["0", "minted", "not", "verified"]
    assert shown["chain"][0] in table[1]
    assert shown["chain"][-1] in table[-1]
    assert shown["chain"][2] not in "".join(table), "takes the key"


def test_later_token_of_a_holder_has_its_id(keys: str, capsys: pytest.CaptureFixture[str]) -> None:
    """KIP-368: a client that logs in again has to be the same principal."""
    words = ["token", "mint", "--keys", keys, "--topic", "orders", "--json"]
    assert main([*words, "--lease", "1h"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*words, "--lease", "2h", "--id", first["chain"][0]]) == 0
    later = json.loads(capsys.readouterr().out)
    assert later["id"] == first["id"]
    assert later["chain"][-1] != first["chain"][-1]


def test_root_keys_are_replaced_with_execute_only(
    keys: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The former key stays good, the one before it ends; nothing secret is printed."""
    assert main(["token", "mint", "--keys", keys]) == 0
    token = capsys.readouterr().out
    before = read_keys(keys)
    rotate = ["token", "rotate", "--keys", keys]
    assert main(rotate) == 0
    assert read_keys(keys) == before
    assert "nothing is changed yet" in capsys.readouterr().err
    assert main([*rotate, "--execute"]) == 0
    assert read_keys(keys).former == before.current
    assert stat.S_IMODE(Path(keys).stat().st_mode) == 0o600
    said = capsys.readouterr().out
    assert before.current.id.hex() in said
    assert not any(line.split()[-1] in said for line in Path(keys).read_text().splitlines() if line[0] == "h")

    inspect = ["token", "inspect", "--keys", keys]
    typed(token, monkeypatch)
    assert main(inspect) == 0
    assert main([*rotate, "--execute"]) == 0
    typed(token, monkeypatch)
    assert main(inspect) == 2
    assert "root key that is not in force" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["attenuate"], "the caveats are missing"),
        (["attenuate", "--operation", "fly"], "operations cannot be fly"),
        (["attenuate", "--peer", "10.0.0.1/8"], "peers cannot be '10.0.0.1/8'"),
        (["attenuate", "--log-level", "loud"], "log_level cannot be 'loud'"),
        (["attenuate", "--epoch", "4294967296"], "epoch: an int32"),
        (["attenuate", "--partitions", "orders:5-2"], "partitions: partitions 5 to 2"),
        (["inspect", "--token-env", "NOT_THERE"], "the environment has no NOT_THERE"),
        (["inspect", "kh1.CANARY"], "a command line is seen by others"),
    ],
)
def test_mistake_is_told_in_a_sentence_without_the_token(
    words: list[str], said: str, keys: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "mint", "--keys", keys]) == 0
    token = capsys.readouterr().out
    typed(token, monkeypatch)
    assert main(["token", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert "kh1." not in error.replace("kh1.CANARY", "?")
    assert "CANARY" not in error


def test_token_of_another_text_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed("kh1.CANARYAA\n", monkeypatch)
    assert main(["token", "inspect"]) == 2
    assert capsys.readouterr().err == "kohort: the token is cut off\n"

"""The file of root keys: for its owner, whole or refused, replaced in one step, and never quoted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kohort.capabilities import RootKeys, read_keys, write_keys
from kohort.errors import ConfigError

FIRST = RootKeys.of(b"CANARY-of-32-bytes-CANARY-of-32b")
BOTH = FIRST.rotated(b"canary-of-32-bytes-canary-of-32b")


@pytest.mark.parametrize("keys", [FIRST, BOTH], ids=["one", "two"])
def test_keys_are_read_as_they_were_written(keys: RootKeys, tmp_path: Path) -> None:
    path = tmp_path / "capability.keys"
    write_keys(path, FIRST)
    write_keys(path, keys)
    assert read_keys(path) == keys
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["capability.keys"]


def test_two_keys_are_alive() -> None:
    """A third one ends the first."""
    after = BOTH.rotated(bytes(32))
    assert [after.find(each.id) is not None for each in (FIRST.current, BOTH.current, after.current)] == [
        False,
        True,
        True,
    ]
    with pytest.raises(ConfigError, match="another one is needed"):
        FIRST.rotated(FIRST.current.secret)
    with pytest.raises(ConfigError, match="has 32 bytes"):
        RootKeys.of(b"short")


def test_file_that_is_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    """Torn by a crash of another program, or a disk that was full: never taken for fewer keys."""
    data = BOTH.to_bytes()
    for end in range(len(data)):
        with pytest.raises(ConfigError, match="keys is cut off: its last line should be `end`") as why:
            RootKeys.from_bytes(data[:end], "/data/capability.keys")
        assert "CANARY" not in str(why.value)
    assert RootKeys.from_bytes(data, "") == BOTH


def test_damaged_file_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    """Each byte of a key changed; what remains readable is no key."""
    data = FIRST.to_bytes()
    begin = data.index(b"hmac-")
    for at in range(begin, len(data) - 5):
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(ConfigError) as why:
            RootKeys.from_bytes(changed, "k")
        assert data.decode().split()[-2][:12] not in str(why.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"end\n", "has 0 root keys"),
        (BOTH.to_bytes().replace(b"end\n", BOTH.to_bytes()), "has 4 root keys"),
        (FIRST.to_bytes().replace(b"end\n", b"") + FIRST.to_bytes(), "same root key twice"),
        (FIRST.to_bytes().replace(b"sha256 ", b"sha512 "), "key 1 of .* is not of the kind hmac-sha256"),
        ("é\nend\n".encode(), "characters beyond ASCII"),
        (b"#" * 5_000, "longer than 4096 bytes"),
    ],
)
def test_file_of_another_form_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "capability.keys"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=said):
        read_keys(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622, 0o644])
def test_file_that_is_open_to_others_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "capability.keys"
    write_keys(path, FIRST)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="are open to others; chmod 600"):
        read_keys(path)


def test_file_that_is_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: no such file"):
        read_keys(tmp_path / "none")
    path = tmp_path / "capability.keys"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_keys(path, FIRST)
    assert os.listdir(tmp_path) == ["capability.keys"], "no draft is left"

"""`kohort user ... --file` and `kohort up --scram-user`: users of a broker, whose passwords no command line has."""

from __future__ import annotations

import json
import stat
from argparse import Namespace
from pathlib import Path

import pytest

from kohort.broker.options.first_users import FirstUser, check_first_users
from kohort.cli.main import build_parser, main
from kohort.cli.verbs.up import first_user
from kohort.errors import ConfigError
from kohort.security.plain_users import LEAST_ITERATIONS, read_users

ROUNDS = ("--iterations", str(LEAST_ITERATIONS))


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """A file whose first line is a password."""
    path = tmp_path / "secret"
    path.write_text("wonder\nand more\n")
    return str(path)


def options(*words: str) -> Namespace:
    return build_parser(["up"]).parse_args(["up", *words])


def test_user_is_added_listed_and_removed(tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is its owner's, and nothing is removed without --execute."""
    path = tmp_path / "users"
    file = ("--file", str(path))
    assert main(["user", "add", "alice", *file, *ROUNDS, "--password-file", secret]) == 0
    assert capsys.readouterr().out == f"alice can log in by PLAIN, a new user of {path}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_users(path)["alice"].matches(b"wonder")

    assert main(["user", "add", "alice", *file, *ROUNDS, "--password-file", secret, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["new"] is False
    assert main(["user", "list", *file, "--json"]) == 0
    assert "alice" in capsys.readouterr().out

    assert main(["user", "remove", "alice", *file]) == 0
    assert list(read_users(path)) == ["alice"]
    assert main(["user", "remove", "alice", *file, "--execute"]) == 0
    assert read_users(path) == {}
    assert "wonder" not in "".join(capsys.readouterr())


def test_password_comes_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for the users of a cluster."""
    monkeypatch.setenv("ALICES", "wonder")
    path = tmp_path / "users"
    assert main(["user", "add", "alice", "--file", str(path), *ROUNDS, "--password-env", "ALICES"]) == 0
    assert read_users(path)["alice"].matches(b"wonder")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("alice", "--password", "wonder"), "a command line is seen by others"),
        (("al\nice", "--password-file", "{secret}"), "printable"),
        (("", "--password-file", "{secret}"), "not empty"),
        (("alice", "--password-file", "{empty}"), "the password of alice is empty"),
        (("alice", "--password-file", "{secret}", "--iterations", "1"), "--iterations cannot be 1"),
        (("alice", "--password-env", "NO_SUCH"), "the environment has no NO_SUCH"),
    ],
)
def test_odd_user_is_refused_and_the_file_stays(
    words: tuple[str, ...], said: str, tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, without the password."""
    empty = tmp_path / "empty"
    empty.write_text("\n")
    path = tmp_path / "users"
    given = [word.format(secret=secret, empty=empty) for word in words]
    assert main(["user", "add", *given, "--file", str(path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "wonder" not in err
    assert not path.exists()


def test_first_users_are_read_from_files_and_the_environment(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`NAME[:MECHANISM]=@FILE` or `=ENV:VARIABLE`."""
    monkeypatch.setenv("BOBS", "can")
    given = options("--scram-user", f"alice=@{secret}", "--scram-user", "bob:SCRAM-SHA-256=ENV:BOBS").scram_user
    users = check_first_users(map(first_user, given))
    assert users == (FirstUser.of("alice", "wonder"), FirstUser.of("bob", "can", "SCRAM-SHA-256"))
    assert users[0].mechanism == "SCRAM-SHA-512"
    assert users[0].password.value == "wonder"
    assert "wonder" not in repr(users)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("alice=wonder", "a command line is seen by others"),
        ("alice", "NAME=@FILE"),
        ("alice:PLAIN=@{secret}", "PLAIN is no mechanism"),
        ("=@{secret}", "not empty"),
        ("alice=ENV:NO_SUCH", "which --scram-user names"),
    ],
)
def test_odd_first_user_is_refused(text: str, said: str, secret: str) -> None:
    """What may be a password is not repeated."""
    with pytest.raises(ConfigError, match=said) as told:
        first_user(text.format(secret=secret))
    assert "wonder" not in str(told.value)


def test_first_user_that_is_given_twice_is_refused() -> None:
    """Which of the two passwords would hold?"""
    with pytest.raises(ConfigError, match="alice is given twice"):
        check_first_users([FirstUser.of("alice", "a"), FirstUser.of("alice", "b")])

"""Users of PLAIN: their file, their hashes, and what a login configuration of Java lists."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kohort.errors import ConfigError
from kohort.security.jaas import parse_jaas_users
from kohort.security.plain_users import LEAST_ITERATIONS, PasswordHash, PlainUsers, read_users, write_users

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def hashed(password: str) -> PasswordHash:
    """With as few rounds as a file may have."""
    return PasswordHash.of(password.encode(), iterations=LEAST_ITERATIONS)


def test_file_keeps_users_and_is_its_owners(tmp_path: Path) -> None:
    """What is written is read again, and no password is in it."""
    path = tmp_path / "users"
    users = {"alice": hashed("wonder"), "bob: the builder": hashed("can we fix it")}

    write_users(path, users)

    assert read_users(path) == users
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "wonder" not in path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_user_is_verified_by_hash() -> None:
    """Two users with one password have two hashes."""
    users = PlainUsers({"alice": hashed("wonder"), "bob": hashed("wonder")})

    assert users.verify("alice", b"wonder")
    assert not users.verify("alice", b"wander")
    assert not users.verify("mallory", b"wonder")
    assert hashed("wonder") != hashed("wonder")


def test_password_is_recognised_once_it_was_right() -> None:
    """Without rounds: a known user need not wait behind a crowd of guesses."""
    users = PlainUsers({"alice": hashed("wonder")}, passwords={"bob": "builder"})
    assert not users.recognises("alice", b"wonder")
    assert users.verify("alice", b"wonder")
    assert users.recognises("alice", b"wonder")
    assert users.recognises("bob", b"builder")
    assert not any(
        users.recognises(name, password)
        for name, password in [("alice", b"builder"), ("bob", b"wonder"), ("mallory", b"wonder"), ("", b"")]
    )


def test_right_password_costs_its_rounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand connections of one user cost the rounds of one; a wrong password and an unknown user each time."""
    made: list[bytes] = []
    matches = PasswordHash.matches

    def counted(known: PasswordHash, password: bytes) -> bool:
        made.append(password)
        return matches(known, password)

    users = PlainUsers({"alice": hashed("wonder")})
    monkeypatch.setattr(PasswordHash, "matches", counted)
    for name, password in [("alice", b"wonder"), ("alice", b"no"), ("mallory", b"wonder")] * 2:
        users.verify(name, password)
    assert made == [b"wonder", b"no", b"wonder", b"no", b"wonder"]


def test_users_of_java_are_taken_as_they_are() -> None:
    """Beside those of a file; quotes and escapes are Java's."""
    listed = parse_jaas_users(f'{MODULE} username="admin" password="x" user_alice="won\\"der;" user_a.b=c;')
    assert listed == {"alice": 'won"der;', "a.b": "c"}
    users = PlainUsers({"bob": hashed("can")}, passwords=listed)
    assert users.verify("alice", b'won"der;')
    assert users.verify("bob", b"can")
    assert not users.verify("alice", b"can")
    assert not users.verify("admin", b"x")
    assert users.names == {"alice", "a.b", "bob"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("org.apache.kafka.common.security.scram.ScramLoginModule required;", "another login module"),
        ("", "another login module"),
        (f'{MODULE} user_alice="wonder"', "ends with ;"),
        (f'{MODULE} user_alice="";', "without a name or a password"),
        (f'{MODULE} user_="wonder";', "without a name or a password"),
    ],
)
def test_other_configuration_is_refused_without_its_passwords(text: str, words: str) -> None:
    """The message is for logs."""
    with pytest.raises(ConfigError, match=words) as told:
        parse_jaas_users(text)
    assert "wonder" not in str(told.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("alice:wonder\n", "line 1 of"),
        ("# a remark\n\nbcrypt 10000 c2FsdA== {digest} alice\n", "line 3 of .* another kind"),
        ("pbkdf2-sha256 10 c2FsdA== {digest} alice\n", "another form"),
        ("pbkdf2-sha256 2147483648 c2FsdA== {digest} alice\n", "another form"),
        ("pbkdf2-sha256 10000 c2FsdA== AAAA alice\n", "another form"),
        ("pbkdf2-sha256 10000 %% {digest} alice\n", "is no user"),
        ("pbkdf2-sha256 10000 c2FsdA== {digest} \n", "not empty"),
        ("pbkdf2-sha256 10000 c2FsdA== {digest} alice\npbkdf2-sha256 10000 c2FsdA== {digest} alice\n", "before"),
    ],
)
def test_damaged_file_names_its_line_and_no_secret(tmp_path: Path, lines: str, words: str) -> None:
    """A broker that cannot read its users does not start, and says why."""
    path = tmp_path / "users"
    digest = "A" * 43 + "="
    path.write_text(lines.format(digest=digest))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=words) as told:
        read_users(path)
    assert "wonder" not in str(told.value)
    assert digest not in str(told.value)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602])
def test_file_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    """Its hashes are there to be guessed at, and a new line is a new user."""
    path = tmp_path / "users"
    write_users(path, {"alice": hashed("wonder")})
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_users(path)


def test_missing_file_is_told(tmp_path: Path) -> None:
    """By its name."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_users(tmp_path / "none")

"""PLAIN as a broker hears it."""

from __future__ import annotations

import pytest

from kohort.security.sasl import PlainExchange
from kohort.security.sasl_server import Check, LoginFailed, PlainServer, Step, Success

PASSWORDS = {"alice": b"wonder", "zoë": "schlüssel".encode()}


def server() -> PlainServer:
    return PlainServer(lambda name, password: PASSWORDS.get(name) == password)


def after(step: Step) -> Step:
    """The step behind a check."""
    assert isinstance(step, Check)
    return step.work()


@pytest.mark.parametrize("message", [b"\0alice\0wonder", b"alice\0alice\0wonder", "\0zoë\0schlüssel".encode()])
def test_user_logs_in_with_no_other_name_than_its_own(message: bytes) -> None:
    """kafka-python and aiokafka send the name twice, librdkafka once."""
    assert after(server().step(message)) == Success(message.split(b"\0")[1].decode())


def test_client_of_ours_logs_in() -> None:
    """Both halves agree."""
    assert after(server().step(PlainExchange("alice", "wonder").first())) == Success("alice")


def test_recognised_password_needs_no_thread() -> None:
    broker = PlainServer(lambda *_: False, recognises=lambda name, password: PASSWORDS.get(name) == password)
    assert broker.step(b"\0alice\0wonder") == Success("alice")


def test_unknown_user_and_wrong_password_are_told_the_same() -> None:
    """Neither answer tells an attacker which names are there."""
    texts = set()
    for message in (b"\0alice\0wander", b"\0mallory\0wonder", b"\0alice\0" + b"w" * 20_000):
        with pytest.raises(LoginFailed) as failed:
            after(server().step(message))
        texts.add(str(failed.value))
    assert texts == {PlainServer.REFUSAL}


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "expected 3 tokens"),
        (b"\0alice", "expected 3 tokens"),
        (b"\0alice\0wonder\0", "expected 3 tokens"),
        (b"\0\0wonder", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"root\0alice\0wonder", "different from username"),
        (b"\0al\xffice\0wonder", "UTF-8"),
        (b"\0alice\n\0wonder", "printable"),
        (b"\0" + b"a" * 10_000 + b"\0wonder", "bytes at most"),
    ],
)
def test_refusal_names_the_fault_and_no_password(message: bytes, words: str) -> None:
    """CVE-2017-12610 is the fourth from below: a user must not become another one by naming it."""
    with pytest.raises(LoginFailed, match=words) as failed:
        after(server().step(message))
    assert "wonder" not in str(failed.value)


def test_exchange_is_used_once() -> None:
    """A second message after the first is no PLAIN."""
    used = server()
    used.step(b"\0alice\0wonder")
    with pytest.raises(LoginFailed):
        used.step(b"\0alice\0wonder")


def test_steps_show_no_secret() -> None:
    """Repr of what an exchange hands out, which logs may have."""
    assert "wonder" not in repr(server().step(b"\0alice\0wonder"))

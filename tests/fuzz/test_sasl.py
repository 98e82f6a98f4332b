"""Messages of PLAIN and SCRAM that no client should send: each is refused, and only a whole proof logs in.

Laws: an exchange says what is next or `LoginFailed`, nothing else, in bounded time and memory. A login is of the user
whose password stands in the messages, whatever else was changed in them. No refusal has a part of the password.
"""

from __future__ import annotations

from base64 import b64encode
from random import Random

import pytest

from kohort.security.plain_users import PlainUsers
from kohort.security.sasl import PlainExchange
from kohort.security.sasl_server import Challenge, Check, LoginFailed, PlainServer, ServerExchange, Success
from kohort.security.scram import ScramExchange, salted_password
from kohort.security.scram_server import Decoys, ScramCredential, ScramServer
from support.builders.fuzz import INPUTS, Bounds, Mutator
from support.depth import SEED

PASSWORD = "xyzzy, pass=word"
NONCES = ("ours", "theirs")
SALT = b"the salt"


class Door:
    """A broker that knows one user, with the conversation by which that user logs in."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism
        if mechanism == "PLAIN":
            self._users = PlainUsers(passwords={"alice": PASSWORD})
            self.messages = [PlainExchange("alice", PASSWORD).first()]
            return
        salted = salted_password(mechanism, PASSWORD, salt=SALT, iterations=4096)
        known = ScramCredential.of(mechanism, salted, salt=SALT, iterations=4096)
        self._known, self._decoys = {"alice": known}, Decoys(mechanism, b"secret", [known])
        client = ScramExchange(mechanism, "alice", PASSWORD, nonce=NONCES[0])
        said = b"r=%s,s=%s,i=4096" % ("".join(NONCES).encode(), b64encode(SALT))
        self.messages = [client.first(), client.reply(said)]

    def exchange(self) -> ServerExchange:
        """A new one; its nonce is the same, so that a part of the conversation holds."""
        if self.mechanism == "PLAIN":
            return PlainServer(self._users.verify)
        return ScramServer(
            self.mechanism, lambda name: self._known.get(name) or self._decoys.credential(name), nonce=NONCES[1]
        )

    def told(self, messages: list[bytes]) -> str | None:
        """Who has logged in by these messages; `None`: nobody."""
        exchange = self.exchange()
        for message in messages:
            try:
                step = exchange.step(message)
                if isinstance(step, Check):
                    step = step.work()
            except LoginFailed as why:
                assert "xyzzy" not in str(why) + why.detail
                return None
            if isinstance(step, Success):
                return step.principal_name
            assert isinstance(step, Challenge)
        return None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_changed_conversation_is_refused_or_of_the_same_user(mechanism: str) -> None:
    """Changes that leave the proof whole exist: an authorization identity in PLAIN, an extension of SCRAM."""
    door, random, bounds = Door(mechanism), Random(f"{mechanism} {SEED}"), Bounds()
    mutator, valid = Mutator(random), door.messages
    assert door.told(valid) == "alice"
    logged_in = 0

    def converse() -> None:
        nonlocal logged_in
        who = door.told(messages)
        assert who in (None, "alice")
        if who is not None and mechanism != "PLAIN":
            # Both messages are signed, byte for byte, but for the header of the first, which the last repeats.
            assert messages == valid
        if who is not None:
            assert any(PASSWORD.encode() in each for each in messages) or messages == valid
            logged_in += 1

    for number in range(INPUTS):
        at = random.randrange(len(valid))
        messages = [mutator.changed(each, valid) if place == at else each for place, each in enumerate(valid)]
        try:
            bounds.hold(converse)
        except Exception as why:
            pytest.fail(f"input {number}: {type(why).__name__}: {why}\n{messages!r}")
    assert logged_in < INPUTS, "most of them are damaged"
    print(f"{INPUTS} conversations of {mechanism}: {logged_in} logged in, {bounds}")

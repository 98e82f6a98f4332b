"""SCRAM as a broker hears it: the vectors of the RFCs, clients of ours, and messages that no client should send."""

from __future__ import annotations

import random
from base64 import b64decode, b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.security.sasl_server import Challenge, LoginFailed, Success
from kohort.security.scram import ScramExchange, salted_password
from kohort.security.scram_server import Decoys, ScramCredential, ScramServer

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
REFUSAL = "invalid credentials with SASL mechanism SCRAM-SHA-256"


def credential(mechanism: str, password: str, salt: bytes = b"salt", iterations: int = 4096) -> ScramCredential:
    salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    return ScramCredential.of(mechanism, salted, salt=salt, iterations=iterations)


PENCIL = credential("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))
USERS = {mechanism: {"user": credential(mechanism, "pencil")} for mechanism in MECHANISMS}


def server(mechanism: str = "SCRAM-SHA-256", nonce: str = SERVER_NONCE) -> ScramServer:
    """A broker that knows the user of RFC 7677's example."""
    decoys = Decoys(mechanism, b"secret", USERS[mechanism].values())
    users = {"user": PENCIL} if mechanism == "SCRAM-SHA-256" else USERS[mechanism]
    return ScramServer(mechanism, lambda name: users.get(name) or decoys.credential(name), nonce=nonce)


def test_example_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    broker = server()

    assert broker.step(FIRST) == Challenge(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert broker.step(FINAL) == Success("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_password_that_is_changed_during_the_exchange_is_the_old_one() -> None:
    """Else an exchange that is kept open logs a removed user in again, once the name is given anew."""
    users = {"user": PENCIL}
    broker = ScramServer("SCRAM-SHA-256", users.__getitem__, nonce=SERVER_NONCE)
    broker.step(FIRST)
    users["user"] = credential("SCRAM-SHA-256", "another")
    with pytest.raises(LoginFailed, match=REFUSAL):
        broker.step(FINAL)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a,b", "a=b", "=2C", "=,=", "zoë", " blank "])
def test_client_of_ours_proves_its_password_and_gets_proof(mechanism: str, name: str) -> None:
    """Both halves agree, with names that have to be escaped."""
    known = credential(mechanism, "pass, word=")
    broker = ScramServer(mechanism, {name: known}.__getitem__, nonce="theirs")
    client = ScramExchange(mechanism, name, "pass, word=", nonce="ours")

    challenge = broker.step(client.first())
    assert isinstance(challenge, Challenge)
    end = broker.step(client.reply(challenge.data))

    assert isinstance(end, Success)
    assert end.principal_name == name
    assert client.reply(end.data) == b""
    assert client.is_done


@pytest.mark.parametrize(("user", "password"), [("user", "pen"), ("mallory", "pencil")])
def test_unknown_user_and_wrong_password_are_told_the_same(user: str, password: str) -> None:
    """After the same number of messages, in the same words."""
    broker, client = server(), ScramExchange("SCRAM-SHA-256", user, password, nonce="ours")
    challenge = broker.step(client.first())
    assert isinstance(challenge, Challenge)
    with pytest.raises(LoginFailed) as failed:
        broker.step(client.reply(challenge.data))
    assert str(failed.value).endswith(REFUSAL)
    assert failed.value.detail == "the proof does not hold"


def test_decoy_stays_the_same_and_looks_as_others_do() -> None:
    """Otherwise its salt would tell that there is no such user."""
    known = [credential("SCRAM-SHA-256", "x", b"0k3jf9s8df7", 8192)] * 3 + [
        credential("SCRAM-SHA-256", "y", b"\0" * 16)
    ]
    decoys, again = (Decoys("SCRAM-SHA-256", b"secret", order) for order in (known, known[::-1]))

    found = decoys.credential("mallory")

    assert found == again.credential("mallory")
    assert (found.iterations, len(found.salt)) == (8192, 11)
    assert set(found.salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
    others = [
        decoys.credential("mallory2"),
        Decoys("SCRAM-SHA-256", b"other", known).credential("mallory"),
        Decoys("SCRAM-SHA-512", b"secret", known).credential("mallory"),
    ]
    assert len({each.salt for each in (found, *others)}) == 4


def test_decoys_without_users_have_kafkas_least_rounds() -> None:
    """No credential shows what salts look like."""
    assert Decoys("SCRAM-SHA-256", b"secret", ()).credential("any").iterations == 4096


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,r=ours,n=user",
        b"n,,n=,r=ours",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=ours",
        b"n,,n=us=2c,r=ours",
        b"n,,n=us\xffer,r=ours",
        b"n,,n=us\ner,r=ours",
        b"n,,n=user,r=o\turs",
        b"n,,n=user,r=" + b"o" * 300,
        b"n,,n=" + b"u" * 5000 + b",r=ours",
        b"n,,m=ext,n=user,r=ours",
        b"n,,n=user,r=ours,m=ext",
        b"n,,n=user,r=ours,nonsense",
        b"p=tls-unique,,n=user,r=ours",
        b"x,,n=user,r=ours",
        b"n,user,n=user,r=ours",
        b"n,a=root,n=user,r=ours",
        b"n,,n=user,r=ours,tokenauth=true",
        b"n,,n=user,r=ours,tokenauth=TRUE",
    ],
)
def test_odd_first_message_is_refused(message: bytes) -> None:
    """Names that are empty or escape wrongly, channel binding, a name that is another's, a delegation token."""
    with pytest.raises(LoginFailed, match=r"^Authentication failed"):
        server().step(message)


@pytest.mark.parametrize(
    "message",
    [
        b"n,a=user,n=user,r=ours",
        b"y,,n=user,r=ours",
        b"n,,n=user,r=ours,x=1,tokenauth=false,word=more",
    ],
)
def test_unusual_first_message_is_taken(message: bytes) -> None:
    """RFC 5802: extensions that are not mandatory are ignored; `y` binds nothing."""
    assert isinstance(server().step(message), Challenge)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b"r=rOprNGfwEbeRWgbNEkqO%hv", b"r=rOprNGfwEbeRWgbNEkqO%hw"),
        (b"r=rOprNGfwEbeRWgbNEkqO%", b"r=%"),
        (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b"r=rOprNGfwEbeRWgbNEkqO"),
        (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b"r="),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c="),
        (b"c=biws", b"c=%%"),
        (b"c=biws,", b""),
        (b"p=dHzbZapWIk4j", b"p=dHzbZapWIk4k"),
        (b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p="),
        (b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=", b"p=AAAA"),
        (b",p=dHz", b",m=1,p=dHz"),
        (b",p=dHz", b",x=1,p=dHz"),
        (b",p=", b",q="),
    ],
)
def test_changed_last_message_is_refused(part: bytes, other: bytes) -> None:
    """CVE-2024-56128: the nonce of another exchange, whole or in part; another header; a proof that is none."""
    assert part in FINAL
    broker = server()
    broker.step(FIRST)
    with pytest.raises(LoginFailed, match=REFUSAL):
        broker.step(FINAL.replace(part, other))


def test_proof_of_another_exchange_is_refused() -> None:
    """What was overheard is of no use."""
    broker = server(nonce="another")
    broker.step(FIRST)
    with pytest.raises(LoginFailed, match=REFUSAL):
        broker.step(FINAL)


def test_header_of_the_last_message_is_that_of_the_first() -> None:
    """RFC 5802: `c` is what was said before, so that an attacker in between cannot change it."""
    broker = server()
    broker.step(b"y" + FIRST[1:])
    with pytest.raises(LoginFailed, match=REFUSAL) as failed:
        broker.step(FINAL)
    assert "header" in failed.value.detail


def test_exchange_is_used_once() -> None:
    """After its end it says nothing, whatever the end was."""
    broker = server()
    broker.step(FIRST)
    broker.step(FINAL)
    with pytest.raises(LoginFailed):
        broker.step(FIRST)


def test_keys_are_not_shown() -> None:
    """Repr of a credential, which a log may have."""
    assert repr(PENCIL) == "ScramCredential(iterations=4096)"


@settings(max_examples=300)
@given(first=st.binary(max_size=200), final=st.binary(max_size=200))
def test_any_bytes_are_refused_or_challenged(first: bytes, final: bytes) -> None:
    """No message is a bug, and none logs in."""
    broker = server()
    try:
        broker.step(b"n,,n=user,r=" + first)
        broker.step(final)
    except LoginFailed:
        return
    pytest.fail("a stranger has logged in")


def test_mutated_conversation_logs_in_only_unchanged() -> None:
    """Of a whole exchange, a few bytes are changed: the proof covers every one of them that counts."""
    chance = random.Random(24)
    said = b"r=ours" + SERVER_NONCE.encode() + b",s=" + b64encode(PENCIL.salt) + b",i=4096"
    # The client's proof costs 4,096 rounds, and is the same for each exchange of these nonces.
    answerer = ScramExchange("SCRAM-SHA-256", "user", "pencil", nonce="ours")
    right_first, right_final = answerer.first(), answerer.reply(said)
    for _ in range(3_000):
        broker, first, final = server(), mutated(right_first, chance), mutated(right_final, chance)
        try:
            challenge = broker.step(first)
            broker.step(final)
        except LoginFailed:
            continue
        assert challenge == Challenge(said)
        assert (first, final) == (right_first, right_final)


def mutated(message: bytes, chance: random.Random) -> bytes:
    """The message with some bytes changed, added or taken away; now and then none."""
    found = bytearray(message)
    for _ in range(chance.choice((0, 0, 1, 2, 8))):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(3):
            case 0:
                found[at:at] = bytes([chance.randrange(256)])
            case 1:
                del found[at : at + 1]
            case _:
                found[at : at + 1] = bytes(
                    [chance.choice(b",=\0nrcp") if chance.random() < 0.5 else chance.randrange(256)]
                )
    return bytes(found)

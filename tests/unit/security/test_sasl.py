"""PLAIN and OAUTHBEARER as a client speaks them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.security.sasl import (
    LONGEST_SECRET_BYTES,
    BearerExchange,
    ExchangeFailed,
    PlainExchange,
    check_extensions,
    check_token,
    unsendable,
    without_secrets,
)


def test_plain_is_name_and_password() -> None:
    """RFC 4616, without somebody else's name."""
    exchange = PlainExchange("alice", "wönder")

    assert exchange.first() == "\0alice\0wönder".encode()
    assert exchange.reply(b"") == b""
    assert exchange.is_done
    with pytest.raises(ExchangeFailed):
        exchange.reply(b"")


def test_token_and_extensions_are_sent() -> None:
    """RFC 7628 and KIP-342."""
    exchange = BearerExchange("abc.def", {"logicalCluster": "lkc-1", "poolId": "p"})

    assert exchange.first() == b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01poolId=p\x01\x01"
    assert exchange.reply(b"") == b""
    assert exchange.is_done


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (b'{"status":"invalid_token","scope":"kafka"}', "status invalid_token, scope kafka"),
        (b'{"status":7}', "it does not say why"),
        (b"[]", "it does not say why"),
        (b"nonsense", "it does not say why"),
        (b"[" * 20_000, "it does not say why"),
    ],
)
def test_refused_token_is_answered_before_it_ends(refusal: bytes, said: str) -> None:
    """RFC 7628, section 3.2.3: a client answers with one byte, and the server ends it."""
    exchange = BearerExchange("abc")

    assert exchange.reply(refusal) == b"\x01"
    assert not exchange.is_done
    with pytest.raises(ExchangeFailed, match=said):
        exchange.reply(b"")


@pytest.mark.parametrize("token", ["", "a b", "a\x01b", "ä", "a=b", None, 7, b"abc"])
def test_token_that_cannot_be_sent_is_not_repeated(token: object) -> None:
    """It may be nearly the right one."""
    with pytest.raises(ValueError, match="a token") as caught:
        check_token(token)
    assert not isinstance(token, str) or not token or token not in str(caught.value).replace("a token", "")


@pytest.mark.parametrize(
    "extensions", [{"auth": "x"}, {"Auth": "x"}, {"": "x"}, {"a1": "x"}, {"a": ""}, {"a": "\x01"}, {"a": 7}, {7: "a"}]
)
def test_extensions_that_cannot_be_sent(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_extensions(extensions)
    assert check_extensions({"pool": "p 1"}) == {"pool": "p 1"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("client_secret=xyzzy&scope=kafka", "client_secret=***&scope=kafka"),
        ("https://id.example/token?api-key=xyzzy refused", "https://id.example/token?api-key=*** refused"),
        ("{'access_token': 'xyzzy', 'expires_in': 1}", "{'access_token': ***, 'expires_in': 1}"),
        ('{"refresh_token":"xyz zy"}', '{"refresh_token":***}'),
        ('"id_token": "' + "xyzzy" * 1_000, '"id_token": ***'),
        ("Authorization: Bearer xyzzy==, try again", "Authorization: Bearer ***, try again"),
        ("sent Authorization: Basic eHl6enk6eHl6enk=", "sent Authorization: Basic ***"),
        ("https://me:xyzzy@id.example/", "https://***@id.example/"),
        ("sent eyJhbGciOiJub25lIn0.eyJ4eXp6eSI6MX0.xyzzy", "sent ***"),
        ("401 for the token endpoint:\n  token expired", "401 for the token endpoint: token expired"),
    ],
)
def test_words_of_others_are_told_without_secrets(said: str, told: str) -> None:
    """What libraries repeat of the question and of the answer; in one line, and the rest as it was."""
    assert without_secrets(said) == told


@given(
    st.lists(
        st.sampled_from(["secret", "key", "token=", "a", ".", "-", "//", "@", "ey", "'", '"', ":", " "]), max_size=300
    )
)
def test_any_words_of_others_are_told_within_bounds(parts: list[str]) -> None:
    """However much they look like secrets that begin everywhere; that took forty seconds once."""
    assert len(without_secrets("".join(parts) * 20)) <= 500


def test_secret_has_a_longest_form_in_bytes() -> None:
    """Brokers read messages up to a size; a character may take four."""
    assert unsendable("é" * (LONGEST_SECRET_BYTES // 2)) is None
    assert unsendable("é" * (LONGEST_SECRET_BYTES // 2) + "e") == f"is longer than {LONGEST_SECRET_BYTES} bytes"

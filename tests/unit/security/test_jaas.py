"""`sasl.jaas.config`, as it is pasted out of Java's configurations."""

from __future__ import annotations

import pytest

from kohort.errors import ConfigError
from kohort.security.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.parametrize(
    ("text", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="wonder";', "alice", "wonder"),
        (f"{PLAIN}   required\n  username='alice'\n  password='won der' ; ", "alice", "won der"),
        (f"{PLAIN} required username=alice password=wonder;", "alice", "wonder"),
        (f'{PLAIN} required username = "a" password = ";";', "a", ";"),
        (f'{PLAIN} required username="a" password="=\\"\\\\";', "a", '="\\'),
        (
            f'kafkashaded.{PLAIN} required serviceName="k" username="$ConnectionString" password="E=b;K=c=";',
            "$ConnectionString",
            "E=b;K=c=",
        ),
    ],
)
def test_login_is_read(text: str, username: str, password: str) -> None:
    """Quoted in two ways or not at all, in one line or in several."""
    login = parse_jaas(text)

    assert (login.is_scram, login.username, login.password, login.has_token) == (False, username, password, False)
    assert password not in repr(login)


def test_scram_and_delegation_tokens() -> None:
    """KIP-48: the name and the password are then those of a token."""
    for true in ("true", "True"):
        login = parse_jaas(f'{SCRAM} required username="t" password="p" tokenauth="{true}";')
        assert login.is_scram
        assert login.has_token


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "Kerberos is not spoken"),
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;", "sasl.oauth.token.provider"),
        ("software.amazon.msk.auth.iam.IAMLoginModule required;", "aws-msk-iam-sasl-signer-python"),
        ("org.example.Secret required password=hidden;", "no login module that is known"),
        ("", "no login module that is known"),
        (f'{PLAIN} required username="a" password="hidden"', "ends with ;"),
        (f'{PLAIN} required username="a" password="hidden;', "a quote that is not closed"),
        (f'{PLAIN} required username="a" password "hidden";', "name=value is expected"),
        (f"{PLAIN} required username=a password=hidden; {PLAIN} required;", "one login module"),
        (f'{PLAIN} required password="hidden";', "says no username"),
        (f"{PLAIN} required;", "says no username and no password"),
        (PLAIN, "ends with ;"),
        (f'{PLAIN} required password="{"hidden" * 20_000}";', "longer than 65536"),
    ],
)
def test_what_is_not_read_says_why_and_no_secret(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_jaas(text)
    assert "hidden" not in str(caught.value)

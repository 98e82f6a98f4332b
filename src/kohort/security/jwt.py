"""Signed tokens (JWT) as proof of a client's identity: their keys, their signature, their claims.

Laws: only signatures of a public key count: RS, PS, ES and EdDSA. `none`, and HS with a public key as its secret, are
refused before a key is looked for. Keys that a token contains or points to are ignored. Nothing here reads a clock. No
error or log line contains a token, or a part of one.
Source: RFC 7515 (JWS), RFC 7517 (JWK), RFC 7519 (JWT), RFC 8725 (their best practices); KIP-768.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from kohort.base.jsontext import parse_json
from kohort.errors import ConfigError
from kohort.security.sasl_server import LoginFailed, decoded_name

#: The longest token that is parsed, bytes; identity providers' have 500 to 10,000.
LONGEST_TOKEN_BYTES: Final = 49_152
#: The longest header of a token, in base64: it is parsed on the event loop, before anything is verified.
_LONGEST_HEADER_BYTES: Final = 8_192
#: The longest name of a key, as Apache Kafka looks for.
_LONGEST_KEY_ID: Final = 1_000
#: The largest set of keys, bytes and keys; providers have 2 to 20 of 1 KB.
LONGEST_KEYS_BYTES: Final = 1_000_000
MOST_KEYS: Final = 256
#: Keys that are tried for a token that does not name its own: each costs up to a millisecond.
_MOST_TRIED: Final = 8
#: RSA keys below are too short to be safe (RFC 7518 §3.3), those above cost too much.
_RSA_BITS: Final = range(2_048, 8_193)
#: The end of the year 9999: no token lives so long, and every time up to it is an exact number.
_LAST_SECOND: Final = 253_402_300_799
#: The shortest session, even with a token that has just expired: 0 would mean a session without an end.
_SHORTEST_LIFETIME_MS: Final = 1_000

#: Algorithm -> the type of its keys, and their curves.
_ALGORITHMS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    **{f"{family}{bits}": ("RSA", ()) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
#: The public members of a key by its type; private ones that a provider publishes by mistake are not read.
_MEMBERS: Final = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
#: Type or curve of a key -> an algorithm with which the library parses it; tokens may use another one.
_READ_BY: Final = {"RSA": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class TokenRefused(LoginFailed):
    """A token was refused; `status` is the error code of RFC 6750 for the reason."""

    def __init__(self, text: str, *, status: str = "invalid_token") -> None:
        super().__init__(text)
        self.status: Final = status


def require_library() -> None:
    """Raise `ConfigError` if the library that checks signatures is not installed."""
    try:
        import jwt.algorithms
    except ImportError:
        missing = True
    else:
        missing = not jwt.algorithms.has_crypto
    if missing:
        raise ConfigError("OAUTHBEARER needs PyJWT with cryptography: pip install 'kohort[oauth]'")


@cache
def _library() -> Any:
    import jwt

    # With these algorithms only, no token can make the library use another one.
    return jwt.PyJWS(algorithms=list(_ALGORITHMS))


# Keys


@dataclass(frozen=True, slots=True)
class _Key:
    """A public key; `algorithm` is `None` if it serves all algorithms of its kind."""

    kind: str
    curve: str
    algorithm: str | None
    public: Any = field(repr=False)

    def serves(self, algorithm: str) -> bool:
        kind, curves = _ALGORITHMS[algorithm]
        return self.kind == kind and (not curves or self.curve in curves) and self.algorithm in (None, algorithm)


class KeySet:
    """The public keys of a provider."""

    __slots__ = ("_by_id", "_keys")

    def __init__(self, keys: list[tuple[str | None, _Key]]) -> None:
        self._keys: Final = [key for _, key in keys]
        self._by_id: Final[dict[str, list[_Key]]] = {}
        for key_id, key in keys:
            if key_id is not None:
                self._by_id.setdefault(key_id, []).append(key)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def ids(self) -> frozenset[str]:
        """The ids (`kid`) of the keys that have one."""
        return frozenset(self._by_id)

    def knows(self, token: UnverifiedToken) -> bool:
        """Return whether the set has the key that the token names, of whatever type."""
        return bool(self._keys) if token.key_id is None else token.key_id in self._by_id

    def candidates(self, token: UnverifiedToken) -> list[_Key]:
        """Return the keys that may have signed the token, the most probable first."""
        # A token without a key id may be signed by any key: a provider with one key need not name it.
        named = self._keys if token.key_id is None else self._by_id.get(token.key_id, [])
        return [key for key in named if key.serves(token.algorithm)][:_MOST_TRIED]


#: The keys of a provider that has not answered yet.
NO_KEYS: Final = KeySet([])


def parse_keys(text: bytes) -> KeySet:
    """Parse a JWKS and return its keys that verify signatures.

    Raises:
        ValueError: the text is no JWKS, is too large, or has no such key; the error says which, and quotes nothing.
    """
    if len(text) > LONGEST_KEYS_BYTES:
        raise ValueError(f"it has more than {LONGEST_KEYS_BYTES} bytes")
    if text.lstrip()[:1] == b"<":
        raise ValueError("it is HTML or XML, not JSON")
    try:
        said = parse_json(text)
    except ValueError:
        raise ValueError("it is not JSON") from None
    rows = said.get("keys") if isinstance(said, dict) else None
    if not isinstance(rows, list):
        raise ValueError('it is JSON, but has no list "keys"')
    if len(rows) > MOST_KEYS:
        raise ValueError(f"it has more than {MOST_KEYS} keys")
    found = [pair for row in rows if isinstance(row, dict) and (pair := _key(row)) is not None]
    if not found:
        raise ValueError("it has no key that verifies signatures (RSA of 2048 to 8192 bits, EC, Ed25519, Ed448)")
    return KeySet(found)


def _key(row: Mapping[str, object]) -> tuple[str | None, _Key] | None:
    """Return id and key of one row of a JWKS; `None` if it has another use, or is broken."""
    import jwt

    kind, curve, algorithm, key_id = (row.get(name) for name in ("kty", "crv", "alg", "kid"))
    if not isinstance(kind, str) or kind not in _MEMBERS or row.get("use", "sig") != "sig":
        return None
    operations = row.get("key_ops")
    if isinstance(operations, list) and "verify" not in operations:
        return None
    if algorithm is not None and algorithm not in _ALGORITHMS:
        return None
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _LONGEST_KEY_ID):
        return None
    curve = curve if isinstance(curve, str) and kind != "RSA" else ""
    members = {"kty": kind, **{name: row.get(name) for name in _MEMBERS[kind]}}
    read_by = "EdDSA" if kind == "OKP" else _READ_BY.get(curve or kind)
    if read_by is None:
        return None
    try:
        public = jwt.PyJWK(members, algorithm=read_by).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        # One broken key of a provider must not lock out the clients of its others.
        return None
    if kind == "RSA" and (public.key_size not in _RSA_BITS or public.public_numbers().e.bit_length() > 64):
        return None
    return key_id, _Key(kind, curve, algorithm if isinstance(algorithm, str) else None, public)


# Tokens


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A well-formed token, of which nothing is verified yet."""

    text: str = field(repr=False)
    algorithm: str
    key_id: str | None


def parse_token(text: str) -> UnverifiedToken:
    """Read from a token's header the fields that find its key; raise `TokenRefused` if malformed."""
    if len(text) > LONGEST_TOKEN_BYTES:
        raise TokenRefused(f"the token is longer than {LONGEST_TOKEN_BYTES} bytes")
    # RFC 7516: five parts are encrypted for a receiver that has a key, which a broker has not.
    if text.count(".") != 2:
        raise TokenRefused("the token is no signed JWT: it has not three parts")
    first = text.partition(".")[0]
    if len(first) > _LONGEST_HEADER_BYTES:
        raise TokenRefused(f"the token's header is longer than {_LONGEST_HEADER_BYTES} bytes")
    try:
        header = parse_json(urlsafe_b64decode(first.rstrip("=") + "=" * (-len(first.rstrip("=")) % 4)))
    except (ValueError, Base64Error):
        header = None
    if not isinstance(header, dict):
        raise TokenRefused("the token is no signed JWT: its header is not JSON")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS:
        raise TokenRefused("the token is not signed by one of RS, PS, ES, each with 256, 384, 512, or EdDSA")
    if header.get("b64", True) is not True:
        raise TokenRefused("the token is without its content (b64)")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _LONGEST_KEY_ID):
        raise TokenRefused(f"the name of the token's key is no text of at most {_LONGEST_KEY_ID} characters")
    return UnverifiedToken(text, algorithm, key_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """A listener's requirements for a token; `issuer` of `None` and no `audiences` accept any."""

    issuer: str | None = None
    audiences: tuple[str, ...] = ()
    scope_claim: str = "scope"
    #: Scopes that the token must have, all of them.
    required_scope: tuple[str, ...] = ()
    #: The claim that names the user.
    name_claim: str = "sub"
    clock_skew_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The result of a verified token: the user's name, and the remaining lifetime."""

    name: str
    lifetime_ms: int


def verify_token(token: UnverifiedToken, keys: KeySet, rules: TokenRules, *, now_ms: int) -> VerifiedToken:
    """Check signature and claims of a token; it takes up to a millisecond for each key that is tried.

    Args:
        now_ms: the wall-clock time, milliseconds since 1970.

    Raises:
        TokenRefused: the token proves nothing; the error says why.
    """
    claims = _signed_claims(token, keys)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenRefused("the token is of another issuer")
    if rules.audiences and not _words(claims.get("aud"), split=False) & set(rules.audiences):
        raise TokenRefused("the token is for another audience")
    expires_ms = _time_ms(claims, "exp", is_needed=True)
    begins_ms = max(_time_ms(claims, "iat", is_needed=True), _time_ms(claims, "nbf", is_needed=False))
    if now_ms >= expires_ms + rules.clock_skew_ms:
        raise TokenRefused(f"the token ended {(now_ms - expires_ms) // 1000} s ago by the broker's clock")
    if begins_ms > now_ms + rules.clock_skew_ms:
        raise TokenRefused(f"the token begins in {(begins_ms - now_ms) // 1000} s by the broker's clock")
    if expires_ms <= begins_ms:
        raise TokenRefused("the token ends before it begins")
    if missing := set(rules.required_scope) - _words(claims.get(rules.scope_claim), split=True):
        text = f"the token's {rules.scope_claim} lacks {' '.join(sorted(missing))}"
        raise TokenRefused(text, status="insufficient_scope")
    name = claims.get(rules.name_claim)
    if not isinstance(name, str) or not name:
        raise TokenRefused(f"the token names no user: its claim {rules.name_claim} is missing or no text")
    try:
        principal = decoded_name(name.encode())
    except UnicodeEncodeError:
        raise TokenRefused("the token names no user: half a character is no text") from None
    except LoginFailed as why:
        raise TokenRefused(str(why).removeprefix("Authentication failed: ")) from None
    return VerifiedToken(principal, max(expires_ms - now_ms, _SHORTEST_LIFETIME_MS))


def _signed_claims(token: UnverifiedToken, keys: KeySet) -> dict[str, Any]:
    """Return the claims of a token after verifying its signature by one of the keys."""
    import jwt

    for key in keys.candidates(token):
        try:
            payload = _library().decode_complete(token.text, key.public, algorithms=[token.algorithm])["payload"]
        except jwt.InvalidSignatureError:
            continue
        except (jwt.PyJWTError, ValueError):
            # Unknown names in `crit`, invalid base64: the library's error may quote the token.
            raise TokenRefused("the token is no signed JWT") from None
        try:
            claims = parse_json(payload)
        except ValueError:
            claims = None
        if not isinstance(claims, dict):
            raise TokenRefused("the token's claims are no JSON object")
        return claims
    raise TokenRefused("the token is signed by no key of the issuer")


def _words(value: object, *, split: bool) -> set[str]:
    """Return the strings of a claim that is one string or a list of strings."""
    if isinstance(value, str):
        return set(value.split()) if split else {value}
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()


def _time_ms(claims: Mapping[str, Any], name: str, *, is_needed: bool) -> int:
    """Return a claim's time in milliseconds; 0 for a missing one that is not needed."""
    value = claims.get(name)
    if value is None and not is_needed:
        return 0
    # `true` is a number for Python.
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"the token's claim {name} is missing or no time")
    # JSON's NaN and Infinity are in no range, either.
    if not 0 <= value <= _LAST_SECOND:
        raise TokenRefused(f"the token's claim {name} is no time of this age")
    return int(value * 1000)

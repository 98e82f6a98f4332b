"""The keys of an identity provider: from a file, from an endpoint, and from one that does as it likes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.access import jwks as module
from kohort.broker.access.jwks import Jwks, JwksUrl, token_rules
from kohort.errors import ConfigError
from kohort.security.jwt import LONGEST_KEYS_BYTES, TokenRules, UnverifiedToken
from support.peers.certificates import Certificates, server_context
from support.peers.token_issuer import KeyEndpoint, jwk, jwks
from support.waiting import PATIENCE_SECONDS

HOUR_MS = 3_600_000


def token(name: str | None = "one") -> UnverifiedToken:
    return UnverifiedToken("a.b.c", "ES256", name)


@pytest.fixture
def endpoint() -> Iterator[KeyEndpoint]:
    with KeyEndpoint() as endpoint:
        yield endpoint


def run(
    url: str,
    play: Callable[[Jwks], Coroutine[Any, Any, None]],
    *,
    refresh_ms: int = HOUR_MS,
    backoff_ms: int = 1,
    most_backoff_ms: int = 20,
    fetch_seconds: float = 5.0,
) -> None:
    """Play with the keys of that address, on a loop."""

    async def main() -> None:
        keys = Jwks(
            asyncio.get_running_loop(),
            JwksUrl.of(url),
            refresh_ms=refresh_ms,
            backoff_ms=backoff_ms,
            most_backoff_ms=most_backoff_ms,
            fetch_seconds=fetch_seconds,
        )
        keys.start()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await play(keys)
        finally:
            keys.stop()

    asyncio.run(main())


async def until(happened: Callable[[], object]) -> None:
    """Let the loop turn until something is so; `run` ends what hangs."""
    for _ in count():
        if happened():
            return
        await asyncio.sleep(0.001)


def test_keys_of_a_file_are_there_at_the_start_and_read_again_when_one_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(jwks(jwk("one")))

    async def play(keys: Jwks) -> None:
        assert keys.keys.ids == {"one"}
        file.write_bytes(jwks(jwk("one"), jwk("two")))
        await keys.fetch(token("two"))
        assert keys.keys.ids == {"one", "two"}
        file.write_bytes(b"{")
        await keys.fetch(token("three"))
        assert keys.keys.ids == {"one", "two"}, "what is broken replaces nothing"

    run(file.as_uri(), play)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: None, "No such file"),
        (lambda path: path.mkdir(), "it is no file"),
        (os.mkfifo, "it is no file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is no file"),
        (lambda path: path.write_text("<html>"), "HTML"),
        (lambda path: path.write_bytes(b" " * (LONGEST_KEYS_BYTES + 1)), "more than 1000000 bytes"),
    ],
)
def test_file_without_keys_keeps_the_broker_from_starting(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    path = tmp_path / "keys.json"
    make(path)
    with pytest.raises(ConfigError, match=why):
        run(path.as_uri(), lambda _: pytest.fail("it has started"))


def test_endpoint_that_comes_later_is_waited_for(endpoint: KeyEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    """A provider may start after the broker; it is said once that it is not there, however often it is tried."""
    endpoint.answer = (503, b"")

    async def play(keys: Jwks) -> None:
        await until(lambda: endpoint.asked >= 5)
        endpoint.answer = (200, jwks(jwk("one")))
        await asyncio.gather(*(keys.fetch(token()) for _ in range(100)))
        assert keys.keys.ids == {"one"}

    with caplog.at_level(logging.INFO, "kohort.broker"):
        run(endpoint.url, play)
    lines = [record.getMessage() for record in caplog.records if "jwks" in record.getMessage()]
    assert [line.split()[0] for line in lines] == ["event=jwks_failed", "event=jwks_fetched"]
    assert "it responds with HTTP 503" in lines[0]
    assert f"url={endpoint.url}" in lines[0]


def test_rotated_key_is_fetched_by_the_first_login_that_needs_it(endpoint: KeyEndpoint) -> None:
    """As many logins as come at once make one request."""
    endpoint.answer = (200, jwks(jwk("one")))

    async def play(keys: Jwks) -> None:
        await until(lambda: keys.keys.ids)
        endpoint.answer = (200, jwks(jwk("two")))
        await asyncio.gather(*(keys.fetch(token("two")) for _ in range(50)))
        assert keys.keys.ids == {"two"}
        assert endpoint.asked == 2

    run(endpoint.url, play)


def test_keys_are_refreshed_by_time(endpoint: KeyEndpoint) -> None:
    """A key that the provider has taken back is forgotten without a login that is unknown."""
    endpoint.answer = (200, jwks(jwk("one"), jwk("two")))

    async def play(keys: Jwks) -> None:
        await until(lambda: keys.keys.ids == {"one", "two"})
        endpoint.answer = (200, jwks(jwk("two")))
        await until(lambda: keys.keys.ids == {"two"})

    run(endpoint.url, play, refresh_ms=10)


def test_unknown_keys_do_not_make_requests_without_end(endpoint: KeyEndpoint) -> None:
    """However many an attacker invents: as many as the backoff allows, and no login waits for the next of them."""
    endpoint.answer = (200, jwks(jwk("one")))

    async def play(keys: Jwks) -> None:
        await until(lambda: keys.keys.ids)
        for number in range(200):
            await asyncio.gather(*(keys.fetch(token(f"{number}.{each}")) for each in range(10)))
        assert endpoint.asked <= 2, "the first fetch, and one for the first unknown key at most"

    run(endpoint.url, play, backoff_ms=60_000, most_backoff_ms=60_000)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A byte of the header now and then: each wait is short."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while not handler.server.is_over.wait(0.02):  # type: ignore[attr-defined]
        handler.wfile.write(b"x")
        handler.wfile.flush()


def hang(handler: BaseHTTPRequestHandler) -> None:
    handler.server.is_over.wait(PATIENCE_SECONDS)  # type: ignore[attr-defined]


def large(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(100):
        handler.wfile.write(b" " * 100_000)


def redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/keys")
    handler.end_headers()


BAD: dict[str, tuple[Any, str]] = {
    "hangs": (hang, "it does not respond in time"),
    "drips": (drip, "it does not respond in time"),
    "is too large": (large, "it has more than 1000000 bytes"),
    "redirects": (redirect, "it responds with HTTP 302"),
    "is HTML": ((200, b"<html><body>Sign in</body></html>"), "it is HTML or XML, not JSON"),
    "is empty": ((200, b""), "it is not JSON"),
    "has no keys": ((200, b'{"keys": []}'), "it has no key that verifies signatures"),
    "speaks something else": (lambda handler: handler.wfile.write(b"SSH-2.0-x\r\n"), "it does not speak HTTP"),
    "says nothing": (lambda _: None, "it does not speak HTTP"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_endpoint_keeps_the_old_keys_and_ends_logins_that_need_new_ones(
    endpoint: KeyEndpoint, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.5)
    endpoint.answer = (200, jwks(jwk("one")))

    async def play(keys: Jwks) -> None:
        await until(lambda: keys.keys.ids)
        endpoint.answer, why = BAD[kind]
        await asyncio.gather(*(keys.fetch(token(f"new {number}")) for number in range(20)))
        assert keys.keys.knows(token("one"))
        await until(lambda: why in caplog.text)
        endpoint.answer = (200, jwks(jwk("two")))
        await until(lambda: keys.keys.ids == {"two"})

    run(endpoint.url, play, fetch_seconds=0.3)
    assert caplog.text.count("event=jwks_failed") == 1


@pytest.mark.parametrize(
    ("name", "is_trusted", "is_believed"),
    [("127.0.0.1", True, True), ("127.0.0.1", False, False), ("id.example", True, False)],
)
def test_endpoint_with_tls_is_verified(
    tmp_path: Path, name: str, is_trusted: bool, is_believed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come from the issuer's host alone. Authorities are the system's, or those of SSL_CERT_FILE."""
    certificates = Certificates(tmp_path)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    with KeyEndpoint(server_context(certificates.store(name))) as endpoint:
        endpoint.answer = (200, jwks(jwk("one")))

        async def play(keys: Jwks) -> None:
            await keys.fetch(token())
            assert bool(keys.keys.ids) == is_believed

        run(endpoint.url, play)
        assert (endpoint.asked > 0) == is_believed, "nothing is asked of a host that is not believed"


def test_login_does_not_wait_as_long_as_an_endpoint_hangs(
    endpoint: KeyEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.05)
    endpoint.answer = hang

    async def play(keys: Jwks) -> None:
        await asyncio.gather(*(keys.fetch(token()) for _ in range(20)))
        await until(lambda: endpoint.asked)
        assert not keys.keys.ids

    run(endpoint.url, play, fetch_seconds=10 * PATIENCE_SECONDS)


def test_stop_does_not_wait_for_an_endpoint_that_hangs(endpoint: KeyEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do the logins that wait for it."""
    monkeypatch.setattr(module, "WAIT_SECONDS", 10 * PATIENCE_SECONDS)
    endpoint.answer = hang

    async def play(keys: Jwks) -> None:
        login = asyncio.ensure_future(keys.fetch(token()))
        await until(lambda: endpoint.asked)
        keys.stop()
        await login

    run(endpoint.url, play, fetch_seconds=10 * PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "is no address"), ("keys.json", "is no address"), ("ftp://h/keys", "is no address"),
        ("https://", "is no address"), ("https://h:99999/", "is no address"), ("https://[::1/", "is no address"),
        ("file://", "names no file"),
        ("file://other/keys", "names no file"), ("http://id.example/keys", "for this machine alone"),
        ("http://10.0.0.1/keys", "for this machine alone"),
        ("http://127.0.0.1.evil.example/", "for this machine alone"),
        ("https://me:xyzzy@h/keys", "has a user or password"), ("https://h/a b", "a character that no address has"),
        ("https://h/\x01", "a character that no address has"), ("https://h/ü", "a character that no address has"),
    ],
)  # fmt: skip
def test_address_that_is_none_or_unsafe_is_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        JwksUrl.of(url)
    assert "xyzzy" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/keys?key=xyzzy", "https://h/keys"), ("http://localhost:80/", "http://localhost:80/"),
        ("http://[::1]:8080/k", "http://[::1]:8080/k"), ("http://127.9.9.9", "http://127.9.9.9/"),
        ("file:///a%20b", "file:///a b"), ("file:/a", "file:///a"), ("file://localhost/a", "file:///a"),
    ],
)  # fmt: skip
def test_address_is_shown_without_its_query(url: str, shown: str) -> None:
    assert str(JwksUrl.of(url)) == shown


def values(url: str | None, **more: object) -> dict[str, object]:
    prefix = "sasl.oauthbearer."
    jwks_options = {"url": url, "refresh.ms": HOUR_MS, "retry.backoff.ms": 100, "retry.backoff.max.ms": 10_000}
    return {
        **{f"{prefix}jwks.endpoint.{name}": value for name, value in jwks_options.items()},
        f"{prefix}expected.issuer": "",
        f"{prefix}expected.audience": ["kafka", "mail"],
        f"{prefix}scope.claim.name": "scp",
        f"{prefix}required.scope": "read  write",
        f"{prefix}sub.claim.name": "client_id",
        f"{prefix}clock.skew.seconds": 7,
        **{f"{prefix}{name.replace('_', '.')}": value for name, value in more.items()},
    }


def test_options_are_the_rules_of_a_listener() -> None:
    assert token_rules(values("https://h/")) == TokenRules(
        issuer=None,
        audiences=("kafka", "mail"),
        scope_claim="scp",
        required_scope=("read", "write"),
        name_claim="client_id",
        clock_skew_ms=7_000,
    )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_listener_without_keys_is_refused(loop: asyncio.AbstractEventLoop) -> None:
    with pytest.raises(ConfigError, match=r"needs sasl\.oauthbearer\.jwks\.endpoint\.url"):
        Jwks.of(loop, values(None))


def test_listener_without_the_library_says_what_to_install(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is an extra, loaded where such a listener starts."""
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.setitem(sys.modules, "jwt.algorithms", None)
    with pytest.raises(ConfigError, match=r"pip install 'kohort\[oauth\]'"):
        Jwks.of(loop, values("https://h/"))


def test_listener_for_tokens_of_any_audience_is_warned_of(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    Jwks.of(loop, values("https://h/"))
    assert caplog.text == ""
    Jwks.of(loop, values("https://h/", expected_audience=[]))
    assert caplog.text.count("event=tokens_for_any_audience") == 1

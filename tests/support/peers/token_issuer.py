"""An identity provider for tests: keys, tokens, and an endpoint that serves the keys well or badly."""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
import time
from collections.abc import Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

ISSUER: Final = "https://id.example/"
AUDIENCE: Final = "kafka"
_KEYS: Final[dict[str, Callable[[], Any]]] = {
    "RS": lambda: rsa.generate_private_key(65_537, 2_048),
    "PS": lambda: rsa.generate_private_key(65_537, 2_048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "Ed448": ed448.Ed448PrivateKey.generate,
}


def private_key(name: str, kind: str = "ES256") -> Any:
    """A key that stays the same for a name."""
    return _made(name, kind)


@cache
def _made(name: str, kind: str) -> Any:
    return _KEYS[kind]()


def jwk(name: str, kind: str = "ES256", **more: object) -> dict[str, object]:
    """The public row of that key."""
    algorithm = "EdDSA" if kind == "Ed448" else kind if kind in ("ES256", "ES384", "ES512", "EdDSA") else f"{kind}256"
    public = private_key(name, kind).public_key()
    row = json.loads(jwt.get_algorithm_by_name(algorithm).to_jwk(public))
    return {**row, "kid": name, **more}


def jwks(*rows: dict[str, object]) -> bytes:
    """A set of keys."""
    return json.dumps({"keys": list(rows)}).encode()


def claims(now_s: float | None = None, **more: object) -> dict[str, object]:
    """Good claims of alice, for an hour; `None` takes one out."""
    now = int(time.time() if now_s is None else now_s)
    said: dict[str, object] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3_600}
    return {name: value for name, value in {**said, **more}.items() if value is not None}


def sign(
    said: dict[str, object], name: str = "one", kind: str = "ES256", *, algorithm: str | None = None, **header: object
) -> str:
    """A token with these claims, signed by the key of that name."""
    headers = {name: value for name, value in {"kid": name, **header}.items() if value is not None}
    return jwt.encode(said, private_key(name, kind), algorithm=algorithm or kind, headers=headers)


class KeyEndpoint:
    """An HTTP server on loopback that serves whatever a test puts into `answer`; with a context it speaks TLS."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        #: The answer's status and body; a callable is given the handler and does as it likes.
        self.answer: tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None] = (200, b"")
        self.asked = 0
        #: Set at the end, for answers that hang.
        self.is_over: Final = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # http.server's name
                endpoint.asked += 1
                if callable(endpoint.answer):
                    endpoint.answer(self)
                    return
                status, body = endpoint.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Say nothing of a client that has gone."""

        #: Answers that hang wait for it at the handler's server.
        Quiet.is_over = self.is_over  # type: ignore[attr-defined]
        self._server: Final[socketserver.BaseServer] = Quiet(("127.0.0.1", 0), Handler)
        self.port: Final[int] = self._server.server_address[1]  # type: ignore[index]
        self.url: Final = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}/keys"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread: Final = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> KeyEndpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()
